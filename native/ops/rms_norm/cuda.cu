#include "cuda/rms_norm.cuh"
#include "ops/rms_norm/op.h"

namespace edgewise::cuda {
namespace {

void rms_norm_cuda(const RmsNorm& p, Context& context) { rms_norm_rows(p, nullptr, context); }

EDGEWISE_CUDA_KERNEL(RmsNorm, rms_norm_cuda);

}  // namespace
}  // namespace edgewise::cuda
