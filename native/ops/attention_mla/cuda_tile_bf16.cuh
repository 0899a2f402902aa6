// What the eight consumer warps of the decode kernel do with a block of 32 stored tokens in bf16 (half a page, in the
// swizzled order of kv_mla_layout.cuh). Products are of bf16 as stored; a weight is the sum of two bf16, so that its
// rounding does not show, at the price of twice the MMAs for the values: memory is what bf16 waits for.
//   scores   S^T = K Q^T     warp = 16 tokens x a quarter of the columns of K
//   weights  online softmax  warp = heads w, w + 8, ..; lane = one token
//   values   O^T += V^T P^T  warp = 64 latent columns
#pragma once

#include "ops/attention_mla/cuda_tile.cuh"

namespace edgewise::cuda {

template <int kTiles>
struct Bf16Tile {
  static constexpr int kTokens = 32, kColumns = 8 * kTiles;
  static constexpr bool kScaledByToken = false;
  static constexpr float kShift = 0;
  static constexpr int kQueryPitch = 2 * kWidth + 16;  // odd in units of 16 bytes, for ldmatrix
  static constexpr bool kQueryInRegisters = kTiles <= 2;
  static constexpr int kSteps = kWidth / 4 / 16;  // of 16 columns, of a warp

  struct Query {
    uint32_t held[kQueryInRegisters ? kTiles : 1][kSteps][2];
  };

  __device__ static const uint8_t* row_at(const uint8_t* stage, int token, int chunk) {
    return stage + token * kWidth * 2 + (chunk ^ (token & 7)) * 16;
  }

  __device__ static void load_step(const uint8_t* q, int warp, int lane, int tile, int step, uint32_t b[2]) {
    ldmatrix_x2(b, q + (8 * tile + lane % 8) * kQueryPitch + (warp / 2 * kSteps + step) * 32 + lane / 8 % 2 * 16);
  }

  __device__ static void load_query(uint8_t* q, int columns, Query& out) {
    if constexpr (kQueryInRegisters) {
      const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int s = 0; s < kSteps; ++s) {
          load_step(q, warp, lane, i, s, out.held[i][s]);
          if (8 * i + lane / 4 >= columns) out.held[i][s][0] = out.held[i][s][1] = 0;
        }
    }
  }

  // Zeros for the tokens from `valid` on: an earlier owner of the page may have left infinities.
  __device__ static void clear_tail(uint8_t* stage, int valid) {
    auto* chunks = reinterpret_cast<uint4*>(stage);
    for (int i = valid * (kWidth / 8) + threadIdx.x; i < kStageBytes / 16; i += kConsumers) chunks[i] = make_uint4(0, 0, 0, 0);
  }

  // S [4 quarters of the contraction, kColumns, 32 tokens]; the tokens of column c are swizzled by 8 (c / 2 % 4).
  __device__ static void scores(const uint8_t* stage, const uint8_t* q, const Query& query, float* S) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int group = warp % 2, quarter = warp / 2;
    float sums[kTiles][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      uint32_t a[4];
      ldmatrix_x4(a, row_at(stage, 16 * group + lane % 16, (quarter * kSteps + s) * 2 + lane / 16));
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if constexpr (kQueryInRegisters) {
          mma_bf16(sums[i], a, query.held[i][s]);
        } else {
          uint32_t b[2];
          load_step(q, warp, lane, i, s, b);
          mma_bf16(sums[i], a, b);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int k = 0; k < 4; ++k)
        S[(quarter * kColumns + 8 * i + 2 * t + k % 2) * 32 + ((16 * group + g + k / 2 * 8) ^ (8 * t))] = sums[i][k];
  }

  // P: bf16 [kColumns, 2 terms, 32 tokens].
  __device__ static void weights(const float* S, const float*, int valid, float scale_log2, Softmax<kTiles>& run,
                                 uint8_t* P, float* rescale) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int column = 8 * i + warp;
      const float* from = S + column * 32 + (lane ^ (8 * (warp / 2 % 4)));
      constexpr int kQuarter = kColumns * 32;
      float score = ((from[0] + from[kQuarter]) + (from[2 * kQuarter] + from[3 * kQuarter])) * scale_log2;
      if (lane >= valid) score = -INFINITY;
      const float now = fmaxf(run.most[i], warp_largest(score));
      const float old = exp2_fast(run.most[i] - now), p = exp2_fast(score - now);
      const bf16 high = from_float<bf16>(p), low = from_float<bf16>(p - to_float(high));
      run.total[i] = run.total[i] * old + (to_float(high) + to_float(low));
      run.most[i] = now;
      auto* row = reinterpret_cast<bf16*>(P + column * kWeightPitch);
      row[lane] = high, row[32 + lane] = low;
      if (lane == 0) rescale[column] = old;
    }
  }

  // O of a lane: tiles of 8 heads x 4 tiles of 16 columns, as the MMA has them.
  __device__ static void values(const uint8_t* stage, const uint8_t* P, float (*O)[4][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 0; step < kTokens / 16; ++step) {
      uint32_t high[kTiles][2], low[kTiles][2];
      load_weights<kTiles>(P, lane, step, high);
      load_weights<kTiles>(P, lane, step + kTokens / 16, low);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t a[4];
        ldmatrix_x4_transposed(a, row_at(stage, 16 * step + lane % 8 + lane / 16 * 8, 8 * warp + 2 * i + lane / 8 % 2));
#pragma unroll
        for (int j = 0; j < kTiles; ++j) {
          mma_bf16(O[j][i], a, high[j]);
          mma_bf16(O[j][i], a, low[j]);
        }
      }
    }
  }

  __device__ static void store(const float (*O)[4][4], float, int columns, float* to) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int k = 0; k < 4; ++k)
          if (const int column = 8 * j + 2 * t + k % 2; column < columns)
            to[static_cast<int64_t>(column) * kLatent + 64 * warp + 16 * i + g + k / 2 * 8] = O[j][i][k];
  }
};

}  // namespace edgewise::cuda
