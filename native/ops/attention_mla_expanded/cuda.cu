// Chooses the kernel by what the host knows: dtypes, shapes and alignment.
#include "ops/attention_mla_expanded/cuda_prefill.cuh"

namespace edgewise::cuda {
namespace {

bool aligned(const Tensor& t) {
  bool even = reinterpret_cast<uintptr_t>(t.raw()) % 16 == 0;
  for (int i = 0; i + 1 < t.rank; ++i) even = even && t.stride[i] % 8 == 0;
  return even;
}

bool on_tensor_cores(const AttentionMlaExpanded& p, const DeviceRows& rows, Context& context) {
  if (p.q.dtype != DType::bf16 || p.kv_up.dtype != DType::bf16 || p.pool.layout.format == KvFormat::f32) return false;
  if (!aligned(p.q) || !aligned(p.latent) || !aligned(p.kv_up) || !aligned(p.out)) return false;
  const ExpandedArgs<bf16> a(p);
  const int dim_k = a.nope + a.rope;
  if (dim_k <= 64 && a.dim_v <= 64) return expanded_prefill<64, 64>(a, rows, context);
  if (dim_k <= 192 && a.dim_v <= 128) return expanded_prefill<192, 128>(a, rows, context);
  if (dim_k <= 256 && a.dim_v <= 256) return expanded_prefill<256, 256>(a, rows, context);
  return false;
}

void attention_mla_expanded_cuda(const AttentionMlaExpanded& p, Context& context) {
  const DeviceRows rows(p.rows, p.tokens(), p.pool.pages());
  if (on_tensor_cores(p, rows, context)) return;
  if (p.q.dtype == DType::f32) return expanded_plain(ExpandedArgs<float>(p), p.kv_up.dtype, rows, context);
  expanded_plain(ExpandedArgs<bf16>(p), p.kv_up.dtype, rows, context);
}

EDGEWISE_CUDA_KERNEL(AttentionMlaExpanded, attention_mla_expanded_cuda);

}  // namespace
}  // namespace edgewise::cuda
