#include "cuda/rms_norm.cuh"
#include "ops/add_rms_norm/op.h"

namespace edgewise::cuda {
namespace {

void add_rms_norm_cuda(const AddRmsNorm& p, Context& context) { rms_norm_rows(p, &p.residual, context); }

EDGEWISE_CUDA_KERNEL(AddRmsNorm, add_rms_norm_cuda);

}  // namespace
}  // namespace edgewise::cuda
