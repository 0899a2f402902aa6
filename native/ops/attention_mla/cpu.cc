#include "ops/attention_mla/op.h"

#include "core/attention_paged.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

// One kv head for all query heads: a latent tile is widened once for all heads of a block.
void attention_mla_cpu(const AttentionMla& p, Context& context) {
  PagedAttention paged{p.q, p.out, p.latent, p.latent, &p.pool};
  paged.dim_k = p.width();
  paged.dim_v = p.latent_dim();
  paged.values_in_keys = true;
  paged.softmax_scale = p.softmax_scale;
  paged.k_scale = paged.v_scale = p.scale;
  paged.deterministic = p.deterministic;
  attend_paged(paged, p.rows, context);
}

EDGEWISE_CPU_KERNEL(AttentionMla, attention_mla_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
