#include "ops/attention_gqa/op.h"

#include "core/attention_paged.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

// The tiles of a kv head are shared by its group of query heads and by all tokens of a block.
void attention_gqa_cpu(const AttentionGqa& p, Context& context) {
  PagedAttention paged{p.q, p.out, p.k, p.v, &p.pool};
  paged.kv_heads = p.kv_heads();
  paged.head_stride_k = p.k.stride[1];
  paged.head_stride_v = p.v.stride[1];
  paged.dim_k = paged.dim_v = p.dim();
  paged.softmax_scale = p.softmax_scale;
  paged.k_scale = p.k_scale;
  paged.v_scale = p.v_scale;
  paged.deterministic = p.deterministic;
  attend_paged(paged, p.rows, context);
}

EDGEWISE_CPU_KERNEL(AttentionGqa, attention_gqa_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
