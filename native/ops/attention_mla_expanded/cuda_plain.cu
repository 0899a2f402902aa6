// Absorbed, in f32: a block per token and head takes the query into the latent space, attends there, and projects the
// result to the values' dims. Needs no memory for keys and values, whatever the context.
#include "cuda/attention_plain.cuh"
#include "cuda/launch.h"
#include "ops/attention_mla_expanded/cuda.cuh"

namespace edgewise::cuda {
namespace {

//   shared   [ query: L + rope | sums: L | nope part of the query ]
template <class Act, class Weight>
__global__ void __launch_bounds__(kPlainThreads) plain_kernel(ExpandedArgs<Act> a, DeviceRows rows, Fault fault) {
  __shared__ PlainShared shared;
  const int width = a.L + a.rope;
  auto* q = static_cast<float*>(dynamic_shared());
  float *sums = q + width, *nope = sums + a.L;
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int token = blockIdx.x, head = blockIdx.y, thread = threadIdx.x;
  if (token == 0 && head == 0) rows.check(fault);
  Act* out = a.out + token * a.out_token + head * a.out_head;
  const int index = rows.row_of(token);
  const DeviceRow row = index < 0 ? DeviceRow{} : rows.row(index, fault);
  if (!row.live) {
    for (int i = thread; i < a.dim_v; i += kPlainThreads) out[i] = from_float<Act>(0.0f);
    return;
  }
  const Act* query = a.q + token * a.q_token + head * a.q_head;
  for (int i = thread; i < a.nope; i += kPlainThreads) nope[i] = to_float(query[i]);
  for (int i = thread; i < a.rope; i += kPlainThreads) q[a.L + i] = to_float(query[a.nope + i]);
  __syncthreads();
  const auto* up = static_cast<const Weight*>(a.kv_up) + static_cast<int64_t>(head) * (a.nope + a.dim_v) * a.L;
  for (int l = thread; l < a.L; l += kPlainThreads) {
    float sum = 0;
    for (int i = 0; i < a.nope; ++i) sum += nope[i] * to_float(up[static_cast<int64_t>(i) * a.L + l]);
    q[l] = sum;
  }
  const auto latent = [&](int position) -> VectorRef {
    if (position >= row.past) return {a.latent + (row.begin + position - row.past) * a.latent_token, -1, 1.0f};
    const int64_t page = rows.page(row, position / kPageTokens, fault);
    const int in_page = position % kPageTokens;
    const float scale = a.scales ? a.scales[page * kPageTokens + in_page] : a.format == KvFormat::fp8 ? a.scale : 1.0f;
    return {a.pool + page * a.page_bytes, in_page, scale};
  };
  const int bytes = a.page.element_bytes;
  const auto at = [&](const VectorRef& ref, int i) {
    return element<Act>(ref, i, a.format, bytes, [&](int t, int byte) { return a.page.offset(t, byte / bytes); });
  };
  const float total = attend_plain(q, width, sums, a.L, row.past + (token - row.begin) + 1, a.softmax_scale, shared,
                                   latent, at, latent, at);
  for (int v = thread; v < a.dim_v; v += kPlainThreads) {
    const Weight* line = up + static_cast<int64_t>(a.nope + v) * a.L;
    float sum = 0;
    for (int l = 0; l < a.L; ++l) sum += to_float(line[l]) * sums[l];
    out[v] = from_float<Act>(sum / total);
  }
}

}  // namespace

template <class Act>
void expanded_plain(const ExpandedArgs<Act>& a, DType weight, const DeviceRows& rows, Context& context) {
  const Grid grid{.blocks = {static_cast<unsigned>(rows.tokens), static_cast<unsigned>(a.heads)},
                  .threads = kPlainThreads,
                  .shared = (2 * a.L + a.rope + a.nope) * sizeof(float),
                  .dependent = true};
  const auto kernel = weight == DType::f32    ? plain_kernel<Act, float>
                      : weight == DType::bf16 ? plain_kernel<Act, bf16>
                                              : plain_kernel<Act, f16>;
  launch(context, kernel, grid, a, rows, fault_of(context));
}

template void expanded_plain(const ExpandedArgs<float>&, DType, const DeviceRows&, Context&);
template void expanded_plain(const ExpandedArgs<bf16>&, DType, const DeviceRows&, Context&);

}  // namespace edgewise::cuda
