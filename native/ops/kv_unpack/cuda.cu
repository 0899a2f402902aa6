#include "cuda/kv_copy.cuh"
#include "ops/kv_unpack/op.h"

namespace edgewise::cuda {
namespace {

void kv_unpack_cuda(const KvUnpack& p, Context& context) { kv_copy<false>(p, context); }

EDGEWISE_CUDA_KERNEL(KvUnpack, kv_unpack_cuda);

}  // namespace
}  // namespace edgewise::cuda
