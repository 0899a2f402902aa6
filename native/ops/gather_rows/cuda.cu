#include "cuda/row_lookup.cuh"
#include "ops/gather_rows/op.h"

namespace edgewise::cuda {
namespace {

void gather_rows_cuda(const GatherRows& p, Context& context) { row_lookup_cuda(p, context); }

EDGEWISE_CUDA_KERNEL(GatherRows, gather_rows_cuda);

}  // namespace
}  // namespace edgewise::cuda
