// A block per token and query head.
#include "cuda/attention_plain.cuh"
#include "cuda/launch.h"
#include "ops/attention_gqa/cuda.cuh"

namespace edgewise::cuda {
namespace {

template <class Act>
__global__ void __launch_bounds__(kPlainThreads) plain_kernel(GqaArgs<Act> a, DeviceRows rows, Fault fault) {
  __shared__ PlainShared shared;
  auto* q = static_cast<float*>(dynamic_shared());
  float* sums = q + a.dim;
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int token = blockIdx.x, head = blockIdx.y, thread = threadIdx.x;
  if (token == 0 && head == 0) rows.check(fault);
  Act* out = a.out + token * a.out_token + head * a.out_head;
  const int index = rows.row_of(token);
  const DeviceRow row = index < 0 ? DeviceRow{} : rows.row(index, fault);
  if (!row.live) {
    for (int i = thread; i < a.dim; i += kPlainThreads) out[i] = from_float<Act>(0.0f);
    return;
  }
  const Act* query = a.q + token * a.q_token + head * a.q_head;
  for (int i = thread; i < a.dim; i += kPlainThreads) q[i] = to_float(query[i]);
  const int kv_head = head / a.group;
  const auto vector = [&](int position, int vector, const Act* fresh, int64_t token_stride, float scale) -> VectorRef {
    if (position >= row.past) return {fresh + (row.begin + position - row.past) * token_stride, -1, 1.0f};
    const int64_t page = rows.page(row, position / kPageTokens, fault);
    const int in_page = position % kPageTokens;
    if (a.format == KvFormat::f32 || a.format == KvFormat::bf16) scale = 1;
    if (a.scales) scale = a.scales[(page * kPageTokens + in_page) * 2 * a.kv_heads + vector];
    return {a.pool + page * a.order.page_bytes() + kv_head * a.order.head_bytes(), in_page, scale};
  };
  const int bytes = a.order.element_bytes;
  const float total = attend_plain(
      q, a.dim, sums, a.dim, row.past + (token - row.begin) + 1, a.softmax_scale, shared,
      [&](int j) { return vector(j, kv_head, a.k + kv_head * a.k_head, a.k_token, a.k_scale); },
      [&](const VectorRef& ref, int i) {
        return element<Act>(ref, i, a.format, bytes, [&](int t, int byte) { return a.order.key_offset(t, byte); });
      },
      [&](int j) { return vector(j, a.kv_heads + kv_head, a.v + kv_head * a.v_head, a.v_token, a.v_scale); },
      [&](const VectorRef& ref, int i) {
        return element<Act>(ref, i, a.format, bytes, [&](int t, int byte) { return a.order.value_offset(t, byte); });
      });
  for (int i = thread; i < a.dim; i += kPlainThreads) out[i] = from_float<Act>(sums[i] / total);
}

}  // namespace

template <class Act>
void gqa_plain(const GqaArgs<Act>& a, const DeviceRows& rows, Context& context) {
  const Grid grid{.blocks = {static_cast<unsigned>(rows.tokens), static_cast<unsigned>(a.heads)},
                  .threads = kPlainThreads,
                  .shared = 2 * a.dim * sizeof(float),
                  .dependent = true};
  launch(context, plain_kernel<Act>, grid, a, rows, fault_of(context));
}

template void gqa_plain(const GqaArgs<float>&, const DeviceRows&, Context&);
template void gqa_plain(const GqaArgs<bf16>&, const DeviceRows&, Context&);

}  // namespace edgewise::cuda
