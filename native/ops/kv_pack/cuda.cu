#include "cuda/kv_copy.cuh"
#include "ops/kv_pack/op.h"

namespace edgewise::cuda {
namespace {

void kv_pack_cuda(const KvPack& p, Context& context) { kv_copy<true>(p, context); }

EDGEWISE_CUDA_KERNEL(KvPack, kv_pack_cuda);

}  // namespace
}  // namespace edgewise::cuda
