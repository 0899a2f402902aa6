// Chooses kernels by what the host knows: dtypes, shapes and alignment. Rows are told apart on the device, by their new
// tokens: kernels are launched over all rows, and leave rows of the other kind alone.
#include "ops/attention_gqa/cuda_decode.cuh"
#include "ops/attention_gqa/cuda_prefill.cuh"

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
  if (p.q.dtype == DType::f32) return gqa_plain(GqaArgs<float>(p), rows, context);
  const GqaArgs<bf16> a(p);
  if (!fits_tensor_cores(p) || a.dim > 256) return gqa_plain(a, rows, context);
  // With `deterministic` all rows take the kernel whose arithmetic is the same for any number of new tokens.
  const bool decode = !p.deterministic && (a.dim == 64 || a.dim == 128 || a.dim == 256);
  if (!decode) {
    zero_dead_tokens(prefill_args(a, 0), rows, context);
  } else if (a.dim == 64) {
    gqa_decode<64>(a, rows, context);
  } else if (a.dim == 128) {
    gqa_decode<128>(a, rows, context);
  } else {
    gqa_decode<256>(a, rows, context);
  }
  const int least = decode ? kDecodeTokens + 1 : 0;
  if (rows.tokens < least) return;
  if (a.dim <= 64) gqa_prefill<64>(a, least, rows, context);
  else if (a.dim <= 128) gqa_prefill<128>(a, least, rows, context);
  else gqa_prefill<256>(a, least, rows, context);
}

EDGEWISE_CUDA_KERNEL(AttentionGqa, attention_gqa_cuda);

}  // namespace
}  // namespace edgewise::cuda
