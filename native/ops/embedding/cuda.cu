#include "cuda/row_lookup.cuh"
#include "ops/embedding/op.h"

namespace edgewise::cuda {
namespace {

void embedding_cuda(const Embedding& p, Context& context) { row_lookup_cuda(p, context); }

EDGEWISE_CUDA_KERNEL(Embedding, embedding_cuda);

}  // namespace
}  // namespace edgewise::cuda
