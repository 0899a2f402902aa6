#include "ops/kv_write_gqa/op.h"

#include <vector>

#include "core/kv_store.h"

namespace edgewise {
namespace {

void kv_write_gqa_reference(const KvWriteGqa& p, Context&) {
  const int64_t tokens = p.k.shape[0], heads = p.k.shape[1], dim = p.k.shape[2];
  std::vector<float> row(2 * heads * dim);
  KvStats stats;
  for (int64_t t = 0; t < tokens; ++t) {
    const int32_t slot = p.write_slots.data<int32_t>()[t];
    check_slot(slot, p.pool.pages());
    if (slot < 0) continue;
    for (int64_t h = 0; h < heads; ++h) {
      widen(p.k, t * p.k.stride[0] + h * p.k.stride[1], dim, &row[h * dim]);
      widen(p.v, t * p.v.stride[0] + h * p.v.stride[1], dim, &row[(heads + h) * dim]);
    }
    if (const int64_t nan = count_nan(row.data(), 2 * heads * dim)) {
      stats.nan += nan;
      continue;
    }
    for (int vector = 0; vector < 2 * heads; ++vector)
      stats.saturated +=
          kv_store_vector(p.pool, slot, vector, &row[vector * dim], vector < heads ? p.k_scale : p.v_scale);
  }
  stats.publish(p.stats);
}

}  // namespace

EDGEWISE_OP(kv_write_gqa, KvWriteGqa, parse_kv_write_gqa, kv_write_gqa_reference,
            {{"k", ArgKind::in}, {"v", ArgKind::in}, {"pool", ArgKind::inout}, {"scales", ArgKind::optional},
             {"write_slots", ArgKind::in}, {"stats", ArgKind::inout}, {"format", ArgKind::number},
             {"k_scale", ArgKind::number}, {"v_scale", ArgKind::number}});

}  // namespace edgewise
