#include "ops/kv_write_mla/op.h"

#include <vector>

#include "core/kv_store.h"

namespace edgewise {
namespace {

void kv_write_mla_reference(const KvWriteMla& p, Context&) {
  const int64_t dim = p.latent.shape[1];
  std::vector<float> row(dim);
  KvStats stats;
  for (int64_t t = 0; t < p.latent.shape[0]; ++t) {
    const int32_t slot = p.write_slots.data<int32_t>()[t];
    check_slot(slot, p.pool.pages());
    if (slot < 0) continue;
    widen(p.latent, t * p.latent.stride[0], dim, row.data());
    if (const int64_t nan = count_nan(row.data(), dim)) {
      stats.nan += nan;
      continue;
    }
    stats.saturated += kv_store_vector(p.pool, slot, 0, row.data(), p.scale);
  }
  stats.publish(p.stats);
}

}  // namespace

EDGEWISE_OP(kv_write_mla, KvWriteMla, parse_kv_write_mla, kv_write_mla_reference,
            {{"latent", ArgKind::in}, {"pool", ArgKind::inout}, {"scales", ArgKind::optional},
             {"write_slots", ArgKind::in}, {"stats", ArgKind::inout}, {"format", ArgKind::number},
             {"scale", ArgKind::number}});

}  // namespace edgewise
