// Before the kernels of a call: zeros for tokens without a live row, and the plan of the decode kernel.
#include "ops/attention_gqa/cuda_decode.cuh"

namespace edgewise::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;

// Sum over the threads before this one; `total` gets that of all.
__device__ int exclusive_sum(int value, int* scratch, int& total) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int sum = value;
  for (int by = 1; by < 32; by *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, by);
    if (lane >= by) sum += other;
  }
  if (lane == 31) scratch[warp] = sum;
  __syncthreads();
  int before = 0;
  total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += scratch[w];
    total += scratch[w];
  }
  return before + sum - value;
}

// Block 0 plans; the others, a warp per token, write zeros.
template <class Act>
__global__ void __launch_bounds__(kThreads) plan_kernel(GqaArgs<Act> a, DeviceRows rows, DecodePlan plan, int blocks, Fault fault) {
  __shared__ int scratch[kWarps];
  wait_for_previous_kernel();
  let_next_kernel_start();
  if (blockIdx.x > 0) {
    const int token = (blockIdx.x - 1) * kWarps + threadIdx.x / 32;
    if (token >= rows.tokens) return;
    const int index = rows.row_of(token);
    if (index >= 0 && rows.row(index, fault).live) return;
    Act* out = a.out + token * a.out_token;
    for (int i = threadIdx.x % 32; i < a.heads * a.dim; i += 32)
      out[i / a.dim * a.out_head + i % a.dim] = from_float<Act>(0.0f);
    return;
  }
  const int per_thread = (rows.rows + kThreads - 1) / kThreads, first = threadIdx.x * per_thread;
  const auto cost = [&](int i) {
    const UnitShape shape = i < rows.rows ? unit_shape(rows.row(i, fault), a.group) : UnitShape{0, 0, 0};
    return shape.slices * a.kv_heads * shape.length;
  };
  int own = 0, total = 0;
  for (int i = 0; i < per_thread; ++i) own += cost(first + i);
  int at = exclusive_sum(own, scratch, total);
  for (int i = first; i < first + per_thread && i < rows.rows; ++i) {
    plan.prefix[i] = at;
    at += cost(i);
  }
  const int used = min(blocks, max((total + kLeastPages - 1) / kLeastPages, total > 0 ? 1 : 0));
  if (threadIdx.x == 0) {
    plan.prefix[rows.rows] = total;
    plan.header[0] = total;
    plan.header[1] = used;
  }
  __syncthreads();
  for (int b = threadIdx.x; b < blocks; b += kThreads) {
    plan.arrived[b] = 0;
    if (b >= used) continue;
    const int begin = block_begin(b, used, total);
    int low = 0, high = rows.rows - 1;  // the last row that starts at or before it, and is not empty
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (plan.prefix[middle] <= begin) low = middle;
      else high = middle - 1;
    }
    plan.block_row[b] = low;
  }
}

}  // namespace

template <class Act>
DecodePlan plan_decode(const GqaArgs<Act>& a, const DeviceRows& rows, int blocks, int partial_floats, Context& context) {
  DecodePlan plan;
  auto* ints = static_cast<int*>(context.scratch((2 + rows.rows + 1 + 2 * blocks) * sizeof(int)));
  plan.header = ints;
  plan.prefix = ints + 2;
  plan.block_row = plan.prefix + rows.rows + 1;
  plan.arrived = plan.block_row + blocks;
  plan.partial = static_cast<float*>(context.scratch(size_t{2} * blocks * partial_floats * sizeof(float)));
  const Grid grid{.blocks = 1u + ceil_div(rows.tokens, kWarps), .threads = kThreads, .dependent = true};
  launch(context, plan_kernel<Act>, grid, a, rows, plan, blocks, fault_of(context));
  return plan;
}

template DecodePlan plan_decode(const GqaArgs<bf16>&, const DeviceRows&, int, int, Context&);

}  // namespace edgewise::cuda
