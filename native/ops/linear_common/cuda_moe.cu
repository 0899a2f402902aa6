// The expert ops: pairs grouped by expert on the device, one launch over (entry, columns), then for down the sum over slots.
#include "ops/linear_common/cuda_routing.cuh"
#include "ops/linear_common/cuda_stream.h"
#include "ops/linear_common/cuda_tiled.cuh"
#include "ops/moe_down/op.h"
#include "ops/moe_down_fp8/op.h"
#include "ops/moe_down_int4/op.h"
#include "ops/moe_gate_up/op.h"
#include "ops/moe_gate_up_fp8/op.h"
#include "ops/moe_gate_up_int4/op.h"

namespace edgewise::cuda {
namespace {

constexpr int64_t kMaxSlotBytes = int64_t{256} << 20;  // of one part's slots in down: longer calls go part by part
constexpr int kSumThreads = 256;

// out [token, n] = sum over slots of weight * y [token, slot, n], slots ascending, those without an expert left out.
template <class Out>
__global__ void sum_slots_kernel(const float* y, const int* ids, const float* weights, int experts, int slots, int n, Out* out,
                                 int64_t out_stride) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int column = blockIdx.x * kSumThreads + threadIdx.x, token = blockIdx.y;
  if (column >= n) return;
  float sum = 0;
  for (int j = 0; j < slots; ++j) {
    const int pair = token * slots + j, e = ids[pair];
    if (e >= 0 && e < experts) sum = fmaf(weights[pair], y[static_cast<int64_t>(pair) * n + column], sum);
  }
  out[token * out_stride + column] = from_float<Out>(sum);
}

void gate_up(const GateUpCall& c, Context& context) {
  if (c.out.elements() == 0) return;
  const Matrix gate = matrix_of(c.gate), up = matrix_of(c.up);
  const auto experts = static_cast<int>(c.gate.experts);
  const Rows rows{c.x.raw(), c.x.stride[0], 0, c.out.raw(), c.out.stride[0], c.out.stride[1], static_cast<int>(c.ids.shape[1])};
  const bool streams = stream::takes(gate, c.x.dtype, rows) && stream::takes(up, c.x.dtype, rows);
  const int entry_rows = streams ? stream::entry_rows(c.ids.elements(), experts, 2) : tiled::kRows;
  const RoutingList list = build_routing_list(context, c.ids, experts, entry_rows, 0, c.ids.shape[0]);
  if (streams) return stream::experts(context, gate, &up, rows, list.groups, list.capacity, entry_rows);
  const tiled::Product p{{gate, up}, rows, list.groups, nullptr, DType::f32};
  c.x.dtype == DType::f32 ? tiled::product<2, float, float>(context, p, list.capacity)
                          : tiled::product<2, bf16, bf16>(context, p, list.capacity);
}

void down_products(const DownCall& c, const Rows& rows, int64_t first, int64_t tokens, Context& context) {
  const Matrix w = matrix_of(c.down);
  const auto experts = static_cast<int>(c.down.experts);
  const bool streams = stream::takes(w, c.x.dtype, rows);
  const int entry_rows = streams ? stream::entry_rows(tokens * c.ids.shape[1], experts, 1) : tiled::kRows;
  const RoutingList list = build_routing_list(context, c.ids, experts, entry_rows, first, tokens);
  if (streams) return stream::experts(context, w, nullptr, rows, list.groups, list.capacity, entry_rows);
  const tiled::Product p{{w, {}}, rows, list.groups, nullptr, DType::f32};
  c.x.dtype == DType::f32 ? tiled::product<1, float, float>(context, p, list.capacity)
                          : tiled::product<1, bf16, float>(context, p, list.capacity);
}

template <class Out>
void sum_slots(const DownCall& c, const float* y, int64_t first, int64_t tokens, Context& context) {
  const auto slots = static_cast<int>(c.ids.shape[1]), n = static_cast<int>(c.down.n);
  const Grid grid{.blocks = dim3(ceil_div(n, kSumThreads), static_cast<unsigned>(tokens)), .threads = kSumThreads, .dependent = true};
  launch(context, sum_slots_kernel<Out>, grid, y, c.ids.data<int>() + first * slots, c.weights.data<float>() + first * slots,
         static_cast<int>(c.down.experts), slots, n, c.out.data<Out>() + first * c.out.stride[0], c.out.stride[0]);
}

void down(const DownCall& c, Context& context) {
  const int64_t slots = c.ids.shape[1], n = c.down.n, total = c.ids.shape[0];
  const auto row_bytes = static_cast<int64_t>(std::max<int64_t>(slots, 1) * n * sizeof(float));
  const int64_t part = std::clamp<int64_t>(kMaxSlotBytes / row_bytes, 1, 32768);
  for (int64_t first = 0; first < total; first += part) {
    const int64_t tokens = std::min(part, total - first);
    auto* y = static_cast<float*>(context.scratch(tokens * row_bytes));
    if (slots > 0) {
      const char* x = static_cast<const char*>(c.x.raw()) + first * c.x.stride[0] * static_cast<int64_t>(dtype_size(c.x.dtype));
      const Rows rows{x, c.x.stride[0], c.x.stride[1], y, slots * n, n, static_cast<int>(slots)};
      down_products(c, rows, first, tokens, context);
    }
    c.out.dtype == DType::f32 ? sum_slots<float>(c, y, first, tokens, context) : sum_slots<bf16>(c, y, first, tokens, context);
  }
}

template <class P>
void gate_up_cuda(const P& p, Context& context) { gate_up(p, context); }

template <class P>
void down_cuda(const P& p, Context& context) { down(p, context); }

EDGEWISE_CUDA_KERNEL(MoeGateUp, gate_up_cuda<MoeGateUp>);
EDGEWISE_CUDA_KERNEL(MoeGateUpFp8, gate_up_cuda<MoeGateUpFp8>);
EDGEWISE_CUDA_KERNEL(MoeGateUpInt4, gate_up_cuda<MoeGateUpInt4>);
EDGEWISE_CUDA_KERNEL(MoeDown, down_cuda<MoeDown>);
EDGEWISE_CUDA_KERNEL(MoeDownFp8, down_cuda<MoeDownFp8>);
EDGEWISE_CUDA_KERNEL(MoeDownInt4, down_cuda<MoeDownInt4>);

}  // namespace
}  // namespace edgewise::cuda
