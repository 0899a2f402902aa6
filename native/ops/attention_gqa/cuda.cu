#include "ops/attention_gqa/cuda.cuh"

#include "cuda/launch.h"

namespace edgewise::cuda {
namespace {

void attention_gqa_cuda(const AttentionGqa& p, Context& context) {
  const DeviceRows rows(p.rows, p.tokens(), p.pool.pages());
  if (p.q.dtype == DType::f32) return gqa_plain(GqaArgs<float>(p), rows, context);
  gqa_plain(GqaArgs<bf16>(p), rows, context);
}

EDGEWISE_CUDA_KERNEL(AttentionGqa, attention_gqa_cuda);

}  // namespace
}  // namespace edgewise::cuda
