#include "ops/kv_unpack/op.h"

#include <cstring>

namespace edgewise {
namespace {

void kv_unpack_reference(const KvUnpack& p, Context&) {
  for_each_part(p, [](const uint8_t* pool, uint8_t* row, int64_t n) { std::memcpy(row, pool, n); });
}

}  // namespace

EDGEWISE_OP(kv_unpack, KvUnpack, parse_kv_unpack, kv_unpack_reference,
            {{"pool", ArgKind::in}, {"scales", ArgKind::optional}, {"slots", ArgKind::in}, {"rows", ArgKind::out},
             {"format", ArgKind::number}, {"heads", ArgKind::number}});

}  // namespace edgewise
