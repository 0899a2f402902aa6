// Chooses kernels by what the host knows: dtypes, shapes and alignment. Rows are told apart on the device, by their new
// tokens: kernels are launched over all rows, and leave rows of the other kind alone.
#include "ops/attention_gqa/cuda_decode.cuh"

namespace edgewise::cuda {
namespace {

bool aligned(const Tensor& t) {
  return reinterpret_cast<uintptr_t>(t.raw()) % 16 == 0 && t.stride[0] % 8 == 0 && t.stride[1] % 8 == 0;
}

bool fits_tensor_cores(const AttentionGqa& p) {
  return p.q.dtype == DType::bf16 && p.pool.layout.format != KvFormat::f32 && aligned(p.q) && aligned(p.k) && aligned(p.v) &&
         aligned(p.out) && reinterpret_cast<uintptr_t>(p.pool.bytes.raw()) % 16 == 0;
}

void attention_gqa_cuda(const AttentionGqa& p, Context& context) {
  const DeviceRows rows(p.rows, p.tokens(), p.pool.pages());
  if (p.q.dtype == DType::f32) return gqa_plain(GqaArgs<float>(p), rows, 0, context);
  const GqaArgs<bf16> a(p);
  const bool decode = fits_tensor_cores(p) && !p.deterministic && (a.dim == 64 || a.dim == 128 || a.dim == 256);
  if (decode) {
    if (a.dim == 64) gqa_decode<64>(a, rows, context);
    else if (a.dim == 128) gqa_decode<128>(a, rows, context);
    else gqa_decode<256>(a, rows, context);
  }
  if (!decode || rows.tokens > kDecodeTokens) gqa_plain(a, rows, decode ? kDecodeTokens + 1 : 0, context);
}

EDGEWISE_CUDA_KERNEL(AttentionGqa, attention_gqa_cuda);

}  // namespace
}  // namespace edgewise::cuda
