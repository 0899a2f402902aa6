// Exact sums over the threads of a one-dimensional block of whole warps, in 64-bit integers: the same in any order.
// `scratch` is 32 words of shared memory, free again at the next barrier.
#pragma once

#include "cuda/device_code.cuh"

namespace edgewise::cuda {

__device__ inline uint64_t warp_total(uint64_t v) {
  for (int with = 16; with > 0; with /= 2) v += __shfl_xor_sync(kAllLanes, v, with);
  return v;
}

// Of the lanes up to this one, itself included.
__device__ inline uint64_t warp_prefix_sum(uint64_t v) {
  for (int by = 1; by < 32; by *= 2) {
    const uint64_t below = __shfl_up_sync(kAllLanes, v, by);
    if (static_cast<int>(threadIdx.x % 32) >= by) v += below;
  }
  return v;
}

__device__ inline uint64_t block_total(uint64_t v, uint64_t* scratch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  v = warp_total(v);
  __syncthreads();  // scratch may still be read
  if (lane == 0) scratch[warp] = v;
  __syncthreads();
  return warp_total(lane < warps ? scratch[lane] : 0);
}

struct PrefixSum {
  uint64_t through;  // of the threads up to this one, itself included
  uint64_t total;
};

__device__ inline PrefixSum block_prefix_sum(uint64_t v, uint64_t* scratch) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  v = warp_prefix_sum(v);
  __syncthreads();
  if (lane == 31) scratch[warp] = v;
  __syncthreads();
  const uint64_t before = warp_total(lane < warp ? scratch[lane] : 0);
  return {before + v, warp_total(lane < warps ? scratch[lane] : 0)};
}

}  // namespace edgewise::cuda
