#include "cuda/attention_prefill.cuh"

namespace edgewise::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// A warp per token.
__global__ void __launch_bounds__(kThreads) zero_kernel(PrefillArgs a, DeviceRows rows, Fault fault) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int token = blockIdx.x * kWarps + threadIdx.x / 32;
  if (token >= rows.tokens) return;
  const int index = rows.row_of(token);
  if (index >= 0 && rows.row(index, fault).live) return;
  bf16* out = a.out + token * a.out_token;
  for (int i = threadIdx.x % 32; i < a.kv_heads * a.group * a.dim_v; i += 32)
    out[i / a.dim_v * a.out_head + i % a.dim_v] = from_float<bf16>(0.0f);
}

}  // namespace

void zero_dead_tokens(const PrefillArgs& a, const DeviceRows& rows, Context& context) {
  const Grid grid{.blocks = static_cast<unsigned>(ceil_div(rows.tokens, kWarps)), .threads = kThreads, .dependent = true};
  launch(context, zero_kernel, grid, a, rows, fault_of(context));
}

}  // namespace edgewise::cuda
