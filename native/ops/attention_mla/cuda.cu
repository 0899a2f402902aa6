#include "ops/attention_mla/cuda_plain.cuh"

namespace edgewise::cuda {
namespace {

void attention_mla_cuda(const AttentionMla& p, Context& context) {
  const MlaArgs args(p);
  if (p.q.dtype == DType::f32) attention_mla_plain<float>(p, args, context);
  else attention_mla_plain<bf16>(p, args, context);
}

EDGEWISE_CUDA_KERNEL(AttentionMla, attention_mla_cuda);

}  // namespace
}  // namespace edgewise::cuda
