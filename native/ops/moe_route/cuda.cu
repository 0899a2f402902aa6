// One warp per token. Lane l holds experts l, l + 32, ..: in registers up to 512 experts, in scratch memory beyond.
// The best choice is taken k times by two warp reductions, of the ordered bits of a choice and of the lowest index that
// has them. Bound by latency at decode sizes: the reductions, after one read of the logits.
#include "cuda/launch.h"
#include "ops/moe_route/op.h"

namespace edgewise::cuda {
namespace {

constexpr int kWarps = 4;  // tokens per block
constexpr int kInRegisters = 16;
constexpr uint32_t kGone = 0;  // the key of an expert that is chosen or masked: below that of every float

struct Route {
  const float* logits;
  int64_t stride;
  const float* bias;  // or null
  int32_t* ids;
  float* weights;
  float* scratch;  // [tokens][2][ceil(E / 32)][32], when E is above 512
  int tokens, experts, k, groups, top_groups;
  bool sigmoid, normalize;
  float scale;
};

// A key that rises with the float; equal floats have equal keys (0 and -0 too). NaN is below all others.
__device__ inline uint32_t ordered(float v) {
  if (v != v) return 1;
  const uint32_t bits = __float_as_uint(v + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The two largest of what lanes hold, in every lane.
struct BestTwo {
  float first = -INFINITY, second = -INFINITY;
  __device__ void offer(float v) {
    second = fmaxf(second, fminf(first, v));
    first = fmaxf(first, v);
  }
};

__device__ inline BestTwo warp_best_two(BestTwo best) {
  for (int with = 16; with > 0; with /= 2) {
    const float first = __shfl_xor_sync(kAllLanes, best.first, with);
    const float second = __shfl_xor_sync(kAllLanes, best.second, with);
    best.offer(first);
    best.offer(second);
  }
  return best;
}

// One lane's values of a token: kCount registers, or memory when kCount is 0.
template <class T, int kCount>
struct PerLane {
  T values[kCount];
  __device__ PerLane(void*, int) {}
  __device__ T& operator[](int i) { return values[i]; }
};
template <class T>
struct PerLane<T, 0> {
  T* values;
  __device__ PerLane(void* memory, int lane) : values(static_cast<T*>(memory) + lane) {}
  __device__ T& operator[](int i) { return values[32 * i]; }
};

// Masks all but the best groups. `group_scores` is shared memory of this warp, one float per group.
template <class Keys, class Scores>
__device__ void keep_groups(const Route& r, int lane, int count, Scores& scores, Keys& keys, float* group_scores) {
  const int size = r.experts / r.groups;
  for (int g = 0; g < r.groups; ++g) {
    BestTwo best;
    for (int i = 0; i < count; ++i) {
      const int e = lane + 32 * i;
      if (e < r.experts && e / size == g) best.offer(scores[i] + (r.bias ? r.bias[e] : 0.0f));
    }
    best = warp_best_two(best);
    if (lane == 0) group_scores[g] = best.first + best.second;
  }
  __syncwarp();
  for (int i = 0; i < count; ++i) {
    const int e = lane + 32 * i;
    if (e >= r.experts) continue;
    const int group = e / size;
    const uint32_t mine = ordered(group_scores[group]);
    int better = 0;
    for (int g = 0; g < r.groups; ++g) {
      const uint32_t other = ordered(group_scores[g]);
      better += other > mine || (other == mine && g < group);
    }
    if (better >= r.top_groups) keys[i] = kGone;
  }
}

template <int kCount>
__global__ void __launch_bounds__(kWarps * 32) moe_route_kernel(Route r) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = blockIdx.x * kWarps + warp;
  wait_for_previous_kernel();
  let_next_kernel_start();
  if (t >= r.tokens) return;
  const int count = kCount > 0 ? kCount : (r.experts + 31) / 32;
  float* memory = r.scratch + static_cast<int64_t>(t) * 2 * count * 32;
  PerLane<float, kCount> scores(memory, lane);
  PerLane<uint32_t, kCount> keys(memory + count * 32, lane);

  const float* logits = r.logits + t * r.stride;
  float highest = -INFINITY, total = 0;
  bool nan = false;
  for (int i = 0; i < count; ++i) {
    const int e = lane + 32 * i;
    scores[i] = e < r.experts ? logits[e] : -INFINITY;
    nan |= scores[i] != scores[i];
    highest = fmaxf(highest, scores[i]);
  }
  nan = __any_sync(kAllLanes, nan);
  highest = warp_max(highest);
  for (int i = 0; i < count; ++i) {
    const bool there = lane + 32 * i < r.experts;
    scores[i] = !there || nan ? 0.0f : r.sigmoid ? 1.0f / (1.0f + expf(-scores[i])) : expf(scores[i] - highest);
    total += scores[i];
  }
  if (!r.sigmoid) total = warp_sum(total);
  for (int i = 0; i < count; ++i) {
    const int e = lane + 32 * i;
    if (!r.sigmoid && !nan) scores[i] /= total;
    keys[i] = e < r.experts ? ordered(scores[i] + (r.bias ? r.bias[e] : 0.0f)) : kGone;
  }
  if (r.top_groups < r.groups)
    keep_groups(r, lane, count, scores, keys, static_cast<float*>(dynamic_shared()) + warp * r.groups);

  int32_t* ids = r.ids + static_cast<int64_t>(t) * r.k;
  float* weights = r.weights + static_cast<int64_t>(t) * r.k;
  float sum = 0;
  for (int j = 0; j < r.k; ++j) {
    uint32_t key = kGone;
    int id = INT32_MAX;
    float score = 0;
    for (int i = 0; i < count; ++i)
      if (keys[i] > key) key = keys[i], id = lane + 32 * i, score = scores[i];
    const uint32_t best = __reduce_max_sync(kAllLanes, key);
    id = __reduce_min_sync(kAllLanes, key == best ? id : INT32_MAX);
    score = __shfl_sync(kAllLanes, score, id % 32);
    for (int i = 0; i < count; ++i)
      if (lane + 32 * i == id) keys[i] = kGone;
    sum += score;
    if (lane == j % 32) ids[j] = id, weights[j] = score;  // this lane reads it again below
  }
  if (r.sigmoid) sum += 1e-20f;
  for (int j = lane; j < r.k; j += 32)
    weights[j] = nan ? NAN : weights[j] / (r.normalize ? sum : 1.0f) * r.scale;
}

void moe_route_cuda(const MoeRoute& p, Context& context) {
  Route r{.logits = p.logits.data<float>(),
          .stride = p.logits.stride[0],
          .bias = p.bias.storage ? p.bias.data<float>() : nullptr,
          .ids = p.ids.data<int32_t>(),
          .weights = p.weights.data<float>(),
          .scratch = nullptr,
          .tokens = static_cast<int>(p.logits.shape[0]),
          .experts = static_cast<int>(p.logits.shape[1]),
          .k = static_cast<int>(p.ids.shape[1]),
          .groups = static_cast<int>(p.groups),
          .top_groups = static_cast<int>(p.top_groups),
          .sigmoid = p.sigmoid,
          .normalize = p.normalize,
          .scale = p.scale};
  const Grid grid{.blocks = ceil_div(r.tokens, kWarps),
                  .threads = kWarps * 32,
                  .shared = r.top_groups < r.groups ? kWarps * r.groups * sizeof(float) : 0,
                  .dependent = true};
  if (r.experts <= 256) return launch(context, moe_route_kernel<kInRegisters / 2>, grid, r);
  if (r.experts <= 512) return launch(context, moe_route_kernel<kInRegisters>, grid, r);
  r.scratch = static_cast<float*>(context.scratch(sizeof(float) * 64 * ceil_div(r.experts, 32) * std::max(r.tokens, 1)));
  launch(context, moe_route_kernel<0>, grid, r);
}

EDGEWISE_CUDA_KERNEL(MoeRoute, moe_route_cuda);

}  // namespace
}  // namespace edgewise::cuda
