#include "ops/attention_mla_expanded/cuda.cuh"

#include "cuda/launch.h"

namespace edgewise::cuda {
namespace {

void attention_mla_expanded_cuda(const AttentionMlaExpanded& p, Context& context) {
  const DeviceRows rows(p.rows, p.tokens(), p.pool.pages());
  if (p.q.dtype == DType::f32) return expanded_plain(ExpandedArgs<float>(p), p.kv_up.dtype, rows, context);
  expanded_plain(ExpandedArgs<bf16>(p), p.kv_up.dtype, rows, context);
}

EDGEWISE_CUDA_KERNEL(AttentionMlaExpanded, attention_mla_expanded_cuda);

}  // namespace
}  // namespace edgewise::cuda
