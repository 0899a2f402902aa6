#include "ops/kv_pack/op.h"

#include <cstring>

namespace edgewise {
namespace {

void kv_pack_reference(const KvPack& p, Context&) {
  for_each_part(p, [](uint8_t* pool, const uint8_t* row, int64_t n) { std::memcpy(pool, row, n); });
}

}  // namespace

EDGEWISE_OP(kv_pack, KvPack, parse_kv_pack, kv_pack_reference,
            {{"rows", ArgKind::in}, {"pool", ArgKind::inout}, {"scales", ArgKind::optional}, {"slots", ArgKind::in},
             {"format", ArgKind::number}, {"heads", ArgKind::number}});

}  // namespace edgewise
