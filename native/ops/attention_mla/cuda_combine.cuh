// The last step of the decode kernel: a block per head and token adds up the partial results of its stored tokens and
// attends to the new ones, in f32. The new tokens keep the precision of the call that way, and the pages stay the only
// thing that the decode kernel reads.
// A kernel of its own rather than work of the last block to arrive: one request alone is cut into up to 128 parts, whose
// partial results (2 KB per column) one block would take tens of microseconds to read.
#pragma once

#include "ops/attention_mla/cuda_plan.cuh"

namespace edgewise::cuda {

constexpr int kMaxParts = 128;
constexpr int kNewTile = 32;
constexpr int kCombineThreads = kLatent / 4;  // of one way: four outputs each

struct MlaTensors {
  const bf16 *q, *latent;
  bf16* out;
};

// kWays: parts of the partial results that are added up side by side.
template <int kWays>
__global__ void __launch_bounds__(kCombineThreads * kWays) mla_combine_kernel(MlaArgs a, Window w, MlaPlan plan, MlaTensors x,
                                                                              Partials partials) {
  __shared__ float weights[kMaxParts], scores[kNewTile], totals[2];
  __shared__ float4 sums[kWays > 1 ? kWays - 1 : 1][kCombineThreads];
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int thread = threadIdx.x % kCombineThreads, way = threadIdx.x / kCombineThreads;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = kCombineThreads * kWays / 32;
  const int head = blockIdx.x, token = w.first + blockIdx.y;
  bf16* out = x.out + token * a.out_stride[0] + head * a.out_stride[1] + 4 * thread;
  const int r = plan.token_row[blockIdx.y];
  if (r < 0) {
    if (way == 0) *reinterpret_cast<uint2*>(out) = make_uint2(0, 0);
    return;
  }
  const RowWork row = plan.rows[r];

  // New tokens, up to this one. Pairs of elements: lane l has pairs l, l + 32, ..
  constexpr int kPairs = kWidth / 2 / 32;
  float2 q[kPairs];
  const auto* q_pairs = reinterpret_cast<const uint32_t*>(x.q + token * a.q_stride[0] + head * a.q_stride[1]);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) q[i] = unpack_bf16x2(q_pairs[lane + 32 * i]);
  const int fresh = token - row.first + 1;
  float most = -INFINITY, total = 0;
  float4 sum = make_float4(0, 0, 0, 0);
  for (int begin = 0; begin < fresh; begin += kNewTile) {
    const int n = min(kNewTile, fresh - begin);
    const bf16* latent = x.latent + (row.first + begin) * a.latent_stride;
    for (int j = warp; j < n; j += warps) {
      const auto* pairs = reinterpret_cast<const uint32_t*>(latent + j * a.latent_stride);
      float dot = 0;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        const float2 v = unpack_bf16x2(pairs[lane + 32 * i]);
        dot += q[i].x * v.x + q[i].y * v.y;
      }
      dot = warp_sum(dot);
      if (lane == 0) scores[j] = dot * a.scale_log2;
    }
    __syncthreads();
    const float score = lane < n ? scores[lane] : -INFINITY;
    const float now = fmaxf(most, warp_max(score)), rescale = exp2_fast(most - now), p = exp2_fast(score - now);
    total = total * rescale + warp_sum(p);
    most = now;
    sum = make_float4(sum.x * rescale, sum.y * rescale, sum.z * rescale, sum.w * rescale);
    for (int j = 0; j < n; ++j) {
      const float weight = __shfl_sync(kAllLanes, p, j);
      const uint2 v = *reinterpret_cast<const uint2*>(latent + j * a.latent_stride + 4 * thread);
      const float2 low = unpack_bf16x2(v.x), high = unpack_bf16x2(v.y);
      sum.x += weight * low.x, sum.y += weight * low.y, sum.z += weight * high.x, sum.w += weight * high.y;
    }
    __syncthreads();
  }

  // Stored ones: parts [0, parts) of the unit, in the order of positions.
  const int column = (token - row.begin) * a.heads + head, group = column / w.columns, inside = column % w.columns;
  int parts = 0, slot = 0;
  if (row.items > 0) {
    const int items = *plan.items, first = row.item + group * row.items, last = first + row.items - 1;
    if (w.deterministic) {
      parts = row.items, slot = first;
    } else {
      const int busy = busy_blocks(w, items), block = block_of(first, items, busy);
      parts = block_of(last, items, busy) - block + 1;
      slot = block + row.unit + group;
    }
  }
  const int64_t base = static_cast<int64_t>(slot) * w.columns + inside;
  if (warp == 0) {
    float top = most;
    for (int i = lane; i < parts; i += 32) {
      const float2 part = partials.sums[base + static_cast<int64_t>(i) * w.columns];
      weights[i] = part.x;
      top = fmaxf(top, part.x);
    }
    top = warp_max(top);
    float all = 0;
    for (int i = lane; i < parts; i += 32) {
      weights[i] = exp2_fast(weights[i] - top);
      all += weights[i] * partials.sums[base + static_cast<int64_t>(i) * w.columns].y;
    }
    const float own = exp2_fast(most - top);
    all = warp_sum(all) + total * own;
    if (lane == 0) totals[0] = own, totals[1] = all;
  }
  __syncthreads();
  const float own = way == 0 ? totals[0] : 0;
  sum = make_float4(sum.x * own, sum.y * own, sum.z * own, sum.w * own);
  const float* values = partials.values + base * kLatent + 4 * thread;
#pragma unroll 8
  for (int i = way; i < parts; i += kWays) {
    const float4 part = *reinterpret_cast<const float4*>(values + static_cast<int64_t>(i) * w.columns * kLatent);
    const float weight = weights[i];
    sum.x += weight * part.x, sum.y += weight * part.y, sum.z += weight * part.z, sum.w += weight * part.w;
  }
  if constexpr (kWays > 1) {
    if (way > 0) sums[way - 1][thread] = sum;
    __syncthreads();
    if (way > 0) return;
#pragma unroll
    for (int i = 0; i < kWays - 1; ++i) {
      const float4 part = sums[i][thread];
      sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
    }
  }
  const float scale = 1.0f / totals[1];
  *reinterpret_cast<uint2*>(out) = make_uint2(pack_bf16x2(sum.x * scale, sum.y * scale),
                                              pack_bf16x2(sum.z * scale, sum.w * scale));
}

}  // namespace edgewise::cuda
