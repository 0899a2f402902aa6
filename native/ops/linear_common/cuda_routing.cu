#include "ops/linear_common/cuda_routing.cuh"

namespace edgewise::cuda {

namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;
constexpr int kMaxExperts = 24 << 10;  // two counters of each in shared memory

// Inclusive sums over the block.
__device__ int2 scan(int2 v, int2* warps) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int by = 1; by < 32; by *= 2) {
    const int x = __shfl_up_sync(kAllLanes, v.x, by), y = __shfl_up_sync(kAllLanes, v.y, by);
    if (lane >= by) v.x += x, v.y += y;
  }
  __syncthreads();
  if (lane == 31) warps[warp] = v;
  __syncthreads();
  for (int i = 0; i < warp; ++i) v.x += warps[i].x, v.y += warps[i].y;
  return v;
}

// One block: counts, sums over the experts, entries, then the pairs to their places. The order of an expert's pairs is
// that of arrival; no result depends on it.
__global__ void __launch_bounds__(kThreads) routing_kernel(const int* ids, int pairs, int experts, int rows, Entry* entries,
                                                           int* count, int* places, Fault fault) {
  int* counts = static_cast<int*>(dynamic_shared());  // [experts + 1], the last one for pairs without an expert
  int* next = counts + experts + 1;
  __shared__ int2 warps[kWarps];
  __shared__ int2 before;  // pairs and entries of the experts already done
  wait_for_previous_kernel();
  let_next_kernel_start();
  for (int e = threadIdx.x; e <= experts; e += kThreads) counts[e] = 0;
  if (threadIdx.x == 0) before = make_int2(0, 0);
  __syncthreads();
  for (int p = threadIdx.x; p < pairs; p += kThreads) {
    const int e = ids[p];
    if (e < -1 || e >= experts) raise(fault, FaultCode::bad_index, e);
    atomicAdd(&counts[e < 0 || e >= experts ? experts : e], 1);
  }
  __syncthreads();
  for (int base = 0; base <= experts; base += kThreads) {
    const int e = base + static_cast<int>(threadIdx.x), mine = e <= experts ? counts[e] : 0;
    const int pieces = (mine + rows - 1) / rows;
    const int2 sum = scan(make_int2(mine, pieces), warps), begin = before;
    const int first = begin.x + sum.x - mine, entry = begin.y + sum.y - pieces;
    for (int i = 0; i < pieces; ++i)
      entries[entry + i] = {e < experts ? e : -1, first + i * rows, min(rows, mine - i * rows)};
    if (e <= experts) next[e] = first;
    __syncthreads();
    if (threadIdx.x == kThreads - 1) before = make_int2(begin.x + sum.x, begin.y + sum.y);
    __syncthreads();
  }
  if (threadIdx.x == 0) *count = before.y;
  for (int p = threadIdx.x; p < pairs; p += kThreads) {
    const int e = ids[p];
    places[atomicAdd(&next[e < 0 || e >= experts ? experts : e], 1)] = p;
  }
}

}  // namespace

RoutingList build_routing_list(Context& context, const Tensor& ids, int experts, int rows, int64_t first_token, int64_t tokens) {
  if (experts > kMaxExperts) throw OpError("ids", "a CUDA kernel takes at most " + std::to_string(kMaxExperts) + " experts");
  const auto pairs = static_cast<int>(tokens * ids.shape[1]);
  // Every expert may end in an entry that is not full.
  const int64_t kinds = std::min<int64_t>(pairs, experts + 1);
  RoutingList list;
  list.capacity = static_cast<int>((pairs + kinds * (rows - 1)) / rows);
  auto* count = static_cast<int*>(context.scratch(sizeof(int)));
  auto* entries = static_cast<Entry*>(context.scratch(list.capacity * sizeof(Entry)));
  auto* places = static_cast<int*>(context.scratch(pairs * sizeof(int)));
  list.groups = {0, 0, entries, count, places};
  const Grid grid{.blocks = 1, .threads = kThreads, .shared = 2 * (experts + 1) * sizeof(int), .dependent = true};
  launch(context, routing_kernel, grid, ids.data<int>() + first_token * ids.shape[1], pairs, experts, rows, entries, count,
         places, fault_of(context));
  return list;
}

}  // namespace edgewise::cuda
