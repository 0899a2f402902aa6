// Passes of a block over one row of logits. Warp w owns the w-th range of token ids, so that sums by warp are sums by id.
// Weights are integers, in units of 2^-40 of the largest: their sums are exact, whatever adds them up in whatever order.
#pragma once

#include "cuda/block_scan.cuh"
#include "ops/sample/op.h"

namespace edgewise::cuda {

constexpr float kWeightOne = 0x1p40f;
constexpr int kAhead = 4;  // vectors that a thread loads before it looks at them: 32 KB in flight per block

// Rises with the float; equal floats (0 and -0 too) have equal keys. No NaN comes here.
__device__ inline uint32_t key_of(float v) {
  const uint32_t bits = __float_as_uint(v + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ inline float value_of(uint32_t key) {
  return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

// The last of the candidates that are kept, by rank: falling key, then rising id.
struct Cut {
  uint32_t key;
  int32_t id;
  __device__ bool keeps(uint32_t k, int32_t i) const { return k > key || (k == key && i <= id); }
};

struct LogitRow {
  float* y;
  int32_t vocab;
  bool vectors;  // y is 16-byte aligned

  // fn(logit, id) for the tokens of this thread, by rising id.
  template <class Fn>
  __device__ void for_each(const Fn& fn) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int range = warp_range(), end = min(vocab, (warp + 1) * range);
    int i = warp * range + 4 * lane;
    for (; vectors && i + 128 * (kAhead - 1) + 4 <= end; i += 128 * kAhead) {
      float4 v[kAhead];
      for (int j = 0; j < kAhead; ++j) v[j] = *reinterpret_cast<const float4*>(y + i + 128 * j);
      for (int j = 0; j < kAhead; ++j) {
        const int id = i + 128 * j;
        fn(v[j].x, id), fn(v[j].y, id + 1), fn(v[j].z, id + 2), fn(v[j].w, id + 3);
      }
    }
    for (; i < end; i += 128) for_four(i, fn);
  }

  template <class Fn>
  __device__ void for_four(int i, const Fn& fn) const {
    if (vectors && i + 4 <= vocab) {
      const float4 v = *reinterpret_cast<const float4*>(y + i);
      fn(v.x, i), fn(v.y, i + 1), fn(v.z, i + 2), fn(v.w, i + 3);
    } else {
      for (int j = i; j < i + 4 && j < vocab; ++j) fn(y[j], j);
    }
  }

  // Tokens per warp: whole steps of 128.
  __device__ int warp_range() const { return (vocab + 4 * static_cast<int>(blockDim.x) - 1) / (4 * static_cast<int>(blockDim.x)) * 128; }
};

struct Weights {
  float top, inverse_temperature;
  __device__ uint64_t of(float v) const {
    return static_cast<uint64_t>(expf((v - top) * inverse_temperature) * kWeightOne);
  }
};

struct RowStats {
  float top;
  int32_t top_id;    // the lowest id that has it
  uint32_t best_key; // of this thread's tokens; 0 when it has none
  float log_total;   // log of the sum of exp(logit), when wanted
  bool usable;       // some finite logit, no NaN, no +inf
};

__device__ inline uint64_t block_largest(uint64_t v, uint64_t* scratch) {
  const auto warp_largest = [](uint64_t x) {
    for (int with = 16; with > 0; with /= 2) {
      const uint64_t other = __shfl_xor_sync(kAllLanes, x, with);
      x = other > x ? other : x;
    }
    return x;
  };
  const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
  v = warp_largest(v);
  __syncthreads();
  if (lane == 0) scratch[threadIdx.x / 32] = v;
  __syncthreads();
  return warp_largest(lane < warps ? scratch[lane] : 0);
}

// One pass: the largest logit, and the sum of exponentials relative to the largest so far.
__device__ inline RowStats row_stats(const LogitRow& row, bool want_total, uint64_t* scratch) {
  float best = -INFINITY, sum = 0;
  int32_t best_id = -1;
  bool bad = false;
  row.for_each([&](float v, int32_t id) {
    bad |= !(v < INFINITY);
    if (v > best) {
      if (want_total) sum *= expf(best - v);
      best = v;
      best_id = id;
    }
    if (want_total && v > -INFINITY) sum += expf(v - best);
  });
  RowStats stats;
  stats.best_key = best_id < 0 ? 0 : key_of(best);
  const uint64_t mine = best_id < 0 ? 0 : static_cast<uint64_t>(stats.best_key) << 32 | ~static_cast<uint32_t>(best_id);
  const uint64_t largest = block_largest(bad ? ~uint64_t{0} : mine, scratch);
  stats.usable = largest != 0 && largest != ~uint64_t{0};
  stats.top = value_of(static_cast<uint32_t>(largest >> 32));
  stats.top_id = static_cast<int32_t>(~static_cast<uint32_t>(largest));
  stats.log_total = 0;
  if (want_total && stats.usable) {
    const float share = best_id < 0 ? 0.0f : sum * expf(best - stats.top);
    stats.log_total = stats.top + logf(block_sum(share, reinterpret_cast<float*>(scratch)));
  }
  return stats;
}

// The first token by id up to which the weights add up to more than `target`, with the total of all weights above it.
// weight(logit, id) is a uint64_t. Every thread gets the id.
template <class Weight>
__device__ int32_t walk(const LogitRow& row, const Weight& weight, uint64_t target, const uint64_t* warp_sums,
                        int32_t* found) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  uint64_t before = 0;
  for (int w = 0; w < warp; ++w) before += warp_sums[w];
  if (before <= target && before + warp_sums[warp] > target) {
    const int range = row.warp_range();
    for (int base = warp * range;; base += 128) {
      uint64_t four = 0;
      row.for_four(base + 4 * lane, [&](float v, int32_t id) { four += weight(v, id); });
      const uint64_t through = before + warp_prefix_sum(four);
      const unsigned beyond = __ballot_sync(kAllLanes, through > target);
      if (beyond == 0) {
        before = __shfl_sync(kAllLanes, through, 31);
        continue;
      }
      if (lane == __ffs(static_cast<int>(beyond)) - 1) {
        uint64_t sum = through - four;
        int32_t chosen = -1;
        row.for_four(base + 4 * lane, [&](float v, int32_t id) {
          sum += weight(v, id);
          if (chosen < 0 && sum > target) chosen = id;
        });
        *found = chosen;
      }
      break;
    }
  }
  __syncthreads();
  return *found;
}

// The sum of each warp's weights, in shared memory, and of all.
template <class Weight>
__device__ uint64_t sum_by_warp(const LogitRow& row, const Weight& weight, uint64_t* warp_sums) {
  uint64_t mine = 0;
  row.for_each([&](float v, int32_t id) { mine += weight(v, id); });
  mine = warp_total(mine);
  __syncthreads();
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = mine;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  return warp_total(lane < static_cast<int>(blockDim.x / 32) ? warp_sums[lane] : 0);
}

}  // namespace edgewise::cuda
