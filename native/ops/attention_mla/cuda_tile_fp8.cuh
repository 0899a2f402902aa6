// What the eight consumer warps of the decode kernel do with a block of 64 stored tokens in e4m3 (one page, in the tiled
// order of kv_mla_layout.cuh). Codes become f16 exactly; scales are applied to the scores and the weights, not to codes.
//   scores   S^T = K Q^T     warp = 16 tokens x one half of the columns of K: tokens are rows of the MMA, heads its columns
//   weights  online softmax  warp = heads w, w + 8, ..; lane = two tokens
//   values   O^T += V^T P^T  warp = 64 latent columns: they are the rows
#pragma once

#include "ops/attention_mla/cuda_tile.cuh"

namespace edgewise::cuda {

template <int kTiles, bool kTokenScales>
struct Fp8Tile {
  static constexpr int kTokens = 64, kColumns = 8 * kTiles;
  static constexpr bool kScaledByToken = kTokenScales;
  static constexpr float kShift = 15;  // weights are multiplied by 2^15: in long contexts they stay normal numbers of f16
  static constexpr int kQueryPitch = 2 * kWidth + 64;  // rows start 64 bytes apart modulo 128
  static constexpr bool kQueryInRegisters = kTiles <= 2;
  static constexpr int kSteps = kWidth / 2 / 32;  // tiles of 32 columns of a warp
  static constexpr int kChains = kTiles == 1 ? 2 : 1;  // sums that do not wait for each other

  struct Query {
    uint4 held[kQueryInRegisters ? kTiles : 1][kSteps];
  };

  // Eight bf16 to f16. |q| must be below 65,504.
  __device__ static uint4 narrow(uint4 v) {
    const auto two = [](uint32_t pair) {
      const float2 f = unpack_bf16x2(pair);
      return pack_f16x2(f.x, f.y);
    };
    return make_uint4(two(v.x), two(v.y), two(v.z), two(v.w));
  }

  __device__ static const uint4* query_at(const uint8_t* q, int warp, int lane, int tile, int step) {
    return reinterpret_cast<const uint4*>(q + (8 * tile + lane / 4) * kQueryPitch + warp / 4 * kWidth + step * 64 +
                                          lane % 4 * 16);
  }

  // q: bf16 [kColumns, pitch], `columns` of them real. In registers, or else narrowed in place (then a barrier follows).
  __device__ static void load_query(uint8_t* q, int columns, Query& out) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if constexpr (kQueryInRegisters) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i)
#pragma unroll
        for (int s = 0; s < kSteps; ++s)
          out.held[i][s] = 8 * i + lane / 4 < columns ? narrow(*query_at(q, warp, lane, i, s)) : make_uint4(0, 0, 0, 0);
    } else {
      constexpr int kChunks = kWidth / 8;
      for (int i = threadIdx.x; i < columns * kChunks; i += kConsumers) {
        auto* chunk = reinterpret_cast<uint4*>(q + i / kChunks * kQueryPitch + i % kChunks * 16);
        *chunk = narrow(*chunk);
      }
    }
  }

  // Zeros for the tokens from `valid` on: what an earlier owner of the page left, times a weight of zero, must be zero.
  __device__ static void clear_tail(uint8_t* stage, int valid) {
    for (int i = threadIdx.x; i < kStageBytes / 16; i += kConsumers) {
      const int token = i / (kWidth / 32 * 32) * 16 + 2 * MlaPage::pair_of_slot(i % 32);
      auto* chunk = reinterpret_cast<uint4*>(stage) + i;
      if (token >= valid) *chunk = make_uint4(0, 0, 0, 0);
      else if (token + 1 >= valid)
        *chunk = make_uint4(chunk->x & 0xffffu, chunk->y & 0xffffu, chunk->z & 0xffffu, chunk->w & 0xffffu);
    }
  }

  __device__ static void halves(uint32_t word, uint32_t& low, uint32_t& high) {
    low = e4m3x2_to_f16x2(static_cast<uint16_t>(word));
    high = e4m3x2_to_f16x2(static_cast<uint16_t>(word >> 16));
  }

  // S [2 halves of the contraction, kColumns, 64 tokens]; the pairs of tokens of column c are swizzled by 4 (c / 2 % 4).
  __device__ static void scores(const uint8_t* stage, const uint8_t* q, const Query& query, float* S) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int group = warp % 4, half = warp / 4;
    const uint8_t* from =
        stage + (group * (kWidth / 32) + half * kSteps) * 512 + MlaPage::slot_of_chunk(g, t) * 16;
    float sums[kTiles][kChains][4] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const uint4 k = *reinterpret_cast<const uint4*>(from + s * 512);
      uint32_t a[2][4];
      halves(k.x, a[0][0], a[0][1]);
      halves(k.y, a[0][2], a[0][3]);
      halves(k.z, a[1][0], a[1][1]);
      halves(k.w, a[1][2], a[1][3]);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const uint4 b = kQueryInRegisters ? query.held[kQueryInRegisters ? i : 0][s] : *query_at(q, warp, lane, i, s);
        const uint32_t first[2] = {b.x, b.y}, second[2] = {b.z, b.w};
        mma_f16(sums[i][0], a[0], first);
        mma_f16(sums[i][kChains - 1], a[1], second);
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if constexpr (kChains == 2)
        for (int k = 0; k < 4; ++k) sums[i][0][k] += sums[i][1][k];
      float* to = S + (half * kColumns + 8 * i + 2 * t) * 64 + ((8 * group + g) ^ (4 * t)) * 2;
      *reinterpret_cast<float2*>(to) = make_float2(sums[i][0][0], sums[i][0][2]);
      *reinterpret_cast<float2*>(to + 64) = make_float2(sums[i][0][1], sums[i][0][3]);
    }
  }

  // Scores to weights P (f16 [kColumns, 64 tokens]) and `rescale` [kColumns] of what was summed before. The weight of a
  // token includes its scale, and the largest exponent is that of such weights; `total` counts weights without it, from
  // what they are after rounding, so that rounding does not bias the mean.
  __device__ static void weights(const float* S, const float* token_scales, int valid, float scale_log2,
                                 Softmax<kTiles>& run, uint8_t* P, float* rescale) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float2 scale = make_float2(1, 1), exponent = make_float2(0, 0), inverse = make_float2(1, 1);
    if constexpr (kTokenScales) {
      scale = *reinterpret_cast<const float2*>(token_scales + 2 * lane);
      if (2 * lane >= valid) scale.x = 1;
      if (2 * lane + 1 >= valid) scale.y = 1;
      exponent = make_float2(__log2f(scale.x), __log2f(scale.y));
      inverse = make_float2(1 / scale.x, 1 / scale.y);
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int column = 8 * i + warp;
      const float* from = S + column * 64 + (lane ^ (4 * (warp / 2 % 4))) * 2;
      const float2 x = *reinterpret_cast<const float2*>(from), y = *reinterpret_cast<const float2*>(from + kColumns * 64);
      float first = (x.x + y.x) * scale_log2, second = (x.y + y.y) * scale_log2;
      if constexpr (kTokenScales) first = first * scale.x + exponent.x, second = second * scale.y + exponent.y;
      if (2 * lane >= valid) first = -INFINITY;
      if (2 * lane + 1 >= valid) second = -INFINITY;
      const float now = fmaxf(run.most[i], warp_largest(fmaxf(first, second)));
      const float old = exp2_fast(run.most[i] - now);
      const uint32_t pair = pack_f16x2(exp2_fast(first - now + kShift), exp2_fast(second - now + kShift));
      const float2 p = unpack_f16x2(pair);
      run.total[i] = run.total[i] * old + (p.x * inverse.x + p.y * inverse.y);
      run.most[i] = now;
      *reinterpret_cast<uint32_t*>(P + column * kWeightPitch + lane * 4) = pair;
      if (lane == 0) rescale[column] = old;
    }
  }

  // O of a lane: tiles of 8 heads x 4 pairs of columns; of columns 64 w + 8 g + 2 i (then + 1): heads 2t, 2t + 1.
  __device__ static void values(const uint8_t* stage, const uint8_t* P, float (*O)[4][4]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint8_t* from = stage + (2 * warp + g / 4) * 512 + MlaPage::slot_of_chunk(t, g % 4) * 16;
#pragma unroll
    for (int step = 0; step < kTokens / 16; ++step) {
      uint32_t b[kTiles][2];
      load_weights<kTiles>(P, lane, step, b);
      // Token pairs t and t + 4: four slots of pairs further, the same swizzle.
      const uint4 near = *reinterpret_cast<const uint4*>(from + step * 16 * kWidth);
      const uint4 far = *reinterpret_cast<const uint4*>(from + step * 16 * kWidth + 256);
      const uint32_t n[4] = {near.x, near.y, near.z, near.w}, f[4] = {far.x, far.y, far.z, far.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t a[4];
        halves(__byte_perm(n[i], 0, 0x3120), a[0], a[1]);
        halves(__byte_perm(f[i], 0, 0x3120), a[2], a[3]);
#pragma unroll
        for (int j = 0; j < kTiles; ++j) mma_f16(O[j][i], a, b[j]);
      }
    }
  }

  // The partial result of a segment; `scale` is that of all codes.
  __device__ static void store(const float (*O)[4][4], float scale, int columns, float* to) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < kTiles; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int column = 8 * j + 2 * t + c;
        if (column >= columns) continue;
        auto* out = reinterpret_cast<float4*>(to + static_cast<int64_t>(column) * kLatent + 64 * warp + 8 * g);
        const auto& o = O[j];
        out[0] = make_float4(o[0][c] * scale, o[0][2 + c] * scale, o[1][c] * scale, o[1][2 + c] * scale);
        out[1] = make_float4(o[2][c] * scale, o[2][2 + c] * scale, o[3][c] * scale, o[3][2 + c] * scale);
      }
  }
};

}  // namespace edgewise::cuda
