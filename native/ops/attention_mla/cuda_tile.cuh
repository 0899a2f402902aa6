// What the consumer warps of all formats share.
#pragma once

#include "cuda/mma.cuh"
#include "ops/attention_mla/cuda_plan.cuh"

namespace edgewise::cuda {

constexpr int kConsumerWarps = 8, kConsumers = 32 * kConsumerWarps;
constexpr int kStageBytes = 64 * kWidth;  // a block: 64 tokens of one byte per element, or 32 of two
// Weights of a column: 64 of f16, or 32 of two bf16 each. The pitch is odd in units of 16 bytes, for ldmatrix.
constexpr int kWeightPitch = 144;
// Of a warp, by one instruction on integers that sort as floats do.
__device__ inline float warp_largest(float x) {
  int i = __float_as_int(x);
  i = __reduce_max_sync(kAllLanes, i ^ (i >> 31 & 0x7fffffff));
  return __int_as_float(i ^ (i >> 31 & 0x7fffffff));
}

// The running softmax of a warp's heads: largest exponent, and per lane the sum of its tokens' weights.
template <int kTiles>
struct Softmax {
  float most[kTiles], total[kTiles];
};

  // The weights [8 kTiles, 16 tokens] of a step as the second operand of the MMA.
  template <int kTiles>
__device__ void load_weights(const uint8_t* P, int lane, int step, uint32_t (*b)[2]) {
    if constexpr (kTiles == 1) {
      ldmatrix_x2(b[0], P + lane % 8 * kWeightPitch + step * 32 + lane / 8 % 2 * 16);
    } else {
#pragma unroll
      for (int i = 0; i < kTiles; i += 2) {
        uint32_t r[4];
        ldmatrix_x4(r, P + (8 * (i + lane / 16) + lane % 8) * kWeightPitch + step * 32 + lane / 8 % 2 * 16);
        b[i][0] = r[0], b[i][1] = r[1], b[i + 1][0] = r[2], b[i + 1][1] = r[3];
      }
    }
  }

}  // namespace edgewise::cuda
