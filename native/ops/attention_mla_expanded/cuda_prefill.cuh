// attention_mla_expanded on tensor cores: cuda/attention_prefill.cuh over latent rows, which a block projects up to the keys
// and values of its head tile by tile. Every block of a row does that anew, which costs about three times the attention
// itself with 128 queries a block: a form that expands a row's context once is to replace it for long chunks.
//
//   tile   latent [64, L + rope] as bf16 in shared memory (codes; scales are applied to scores and weights)
//   keys   [ latent . kv_up[head, 0 .. nope] | rope ]      values   latent . kv_up[head, nope .. nope + v]
//          A warp takes 16 outputs for all 64 tokens at a time. The contraction order over the latent is free: lane (g, t)
//          reads 16 consecutive bytes of a row of either operand, its elements of two k16 steps.
#pragma once

#include "cuda/attention_prefill.cuh"
#include "ops/attention_mla_expanded/cuda.cuh"

namespace edgewise::cuda {

template <class Kv>
struct ExpandedSource {
  static constexpr bool kSmall = false;
  ExpandedArgs<bf16> a;

  // Row of the latent tile in elements: rows g and g + 1 then lie 64 bytes apart modulo 128, so no bank conflicts.
  __host__ __device__ static int row_elements(int width) { return (width + 63) / 64 * 64 + 32; }
  static int shared_bytes(const ExpandedArgs<bf16>& a) {
    return kPrefillTile * row_elements(a.L + a.rope) * static_cast<int>(sizeof(bf16));
  }

  template <class Shared>
  __device__ void stage(const DeviceRow& row, const DeviceRows& rows, int head, int first, int end, const Shared& shared,
                        Fault fault) const {
    auto* latent = static_cast<bf16*>(shared.source);
    load(row, rows, first, end, latent, shared, fault);
    __syncthreads();
    const int ld = row_elements(a.L + a.rope);
    for (int i = threadIdx.x; i < kPrefillTile * (a.rope / 8); i += kPrefillThreads) {
      const int token = i / (a.rope / 8), c = i % (a.rope / 8);
      *reinterpret_cast<uint4*>(shared.k.chunk(token, a.nope / 8 + c)) =
          bf16x8_to_f16x8(*reinterpret_cast<const uint4*>(latent + token * ld + a.L + 8 * c));
    }
    project(head, latent, ld, shared);
  }

 private:
  // The latent tile; tokens at `end` and behind are zeros.
  template <class Shared>
  __device__ void load(const DeviceRow& row, const DeviceRows& rows, int first, int end, bf16* latent, const Shared& shared,
                       Fault fault) const {
    const int width = a.L + a.rope, ld = row_elements(width), chunks = width / 8;
    const int stored = max(0, min(kPrefillTile, row.past - first));
    const int64_t page = stored > 0 ? rows.page(row, first / kPageTokens, fault) : 0;
    const uint8_t* bytes = a.pool + page * a.page_bytes;
    for (int i = threadIdx.x; i < kPrefillTile * chunks; i += kPrefillThreads) {
      const int token = i / chunks, c = i % chunks, position = first + token;
      uint4 values = make_uint4(0, 0, 0, 0);
      if (token < stored) {
        uint32_t pairs[4];
        for (int j = 0; j < 4; ++j) {
          const int column = 8 * c + 2 * j;
          const auto at = [&](int d) {
            return to_float(*reinterpret_cast<const Kv*>(bytes + a.page.offset(token, column + d)));
          };
          pairs[j] = pack_bf16x2(at(0), at(1));
        }
        values = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      } else if (position < end) {
        values = *reinterpret_cast<const uint4*>(a.latent + (row.begin + position - row.past) * a.latent_token + 8 * c);
      }
      *reinterpret_cast<uint4*>(latent + token * ld + 8 * c) = values;
      if (c == 0) {
        const float scale = token >= stored ? 1.0f
                            : a.scales      ? a.scales[page * kPageTokens + token]
                            : sizeof(Kv) == 1 ? a.scale
                                              : 1.0f;
        shared.key_factor[token] = scale * a.softmax_scale * kPrefillLog2e;
        shared.value_factor[token] = scale;
      }
    }
  }

  template <class Shared>
  __device__ void project(int head, const bf16* latent, int ld, const Shared& shared) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int outputs = a.nope + a.dim_v;  // a multiple of 8
    const auto* up = static_cast<const bf16*>(a.kv_up) + static_cast<int64_t>(head) * outputs * a.L;
    for (int first = 16 * warp; first < outputs; first += 16 * (kPrefillThreads / 32)) {
      const bool pair = first + 8 < outputs;
      float sums[kPrefillTile / 16][2][4];
#pragma unroll
      for (int m = 0; m < kPrefillTile / 16; ++m)
        for (int i = 0; i < 8; ++i) sums[m][i / 4][i % 4] = 0;
      const bf16* line = up + static_cast<int64_t>(first + g) * a.L + 8 * t;
      const bf16* rows = latent + g * ld + 8 * t;
#pragma unroll 2
      for (int l = 0; l < a.L; l += 32) {
        const uint4 w0 = __ldg(reinterpret_cast<const uint4*>(line + l));
        const uint4 w1 = pair ? __ldg(reinterpret_cast<const uint4*>(line + 8 * a.L + l)) : w0;
#pragma unroll
        for (int m = 0; m < kPrefillTile / 16; ++m) {
          const uint4 low = *reinterpret_cast<const uint4*>(rows + 16 * m * ld + l);
          const uint4 high = *reinterpret_cast<const uint4*>(rows + (16 * m + 8) * ld + l);
          const uint32_t step0[4] = {low.x, high.x, low.y, high.y}, step1[4] = {low.z, high.z, low.w, high.w};
          const uint32_t b00[2] = {w0.x, w0.y}, b01[2] = {w0.z, w0.w}, b10[2] = {w1.x, w1.y}, b11[2] = {w1.z, w1.w};
          mma_bf16(sums[m][0], step0, b00);
          mma_bf16(sums[m][1], step0, b10);
          mma_bf16(sums[m][0], step1, b01);
          mma_bf16(sums[m][1], step1, b11);
        }
      }
#pragma unroll
      for (int m = 0; m < kPrefillTile / 16; ++m)
        for (int n = 0; n < (pair ? 2 : 1); ++n)
          for (int half = 0; half < 2; ++half) {
            const int output = first + 8 * n + 2 * t, token = 16 * m + g + 8 * half;
            f16* to = output < a.nope ? shared.k.element(token, output) : shared.v.element(token, output - a.nope);
            *reinterpret_cast<uint32_t*>(to) = clip_f16x2(sums[m][n][2 * half], sums[m][n][2 * half + 1]);
          }
    }
  }
};

inline PrefillArgs prefill_args(const ExpandedArgs<bf16>& a) {
  return {a.q, a.out, a.q_token, a.q_head, a.out_token, a.out_head, a.heads, 1, a.nope + a.rope, a.dim_v, 0};
}

// False where the shared memory of a block doesn't take the latent tile.
template <int kDimK, int kDimV>
bool expanded_prefill(const ExpandedArgs<bf16>& a, const DeviceRows& rows, Context& context);

template <class Kv, int kDimK, int kDimV>
bool launch_expanded(const ExpandedArgs<bf16>& a, const DeviceRows& rows, Context& context) {
  const int bytes = ExpandedSource<Kv>::shared_bytes(a);
  if (PrefillShared<kDimK, kDimV>::kBytes + bytes > 227 << 10) return false;
  const PrefillArgs args = prefill_args(a);
  zero_dead_tokens(args, rows, context);
  launch_prefill<ExpandedSource<Kv>, kDimK, kDimV>(args, ExpandedSource<Kv>{a}, rows, bytes, context);
  return true;
}

template <>
bool expanded_prefill<64, 64>(const ExpandedArgs<bf16>&, const DeviceRows&, Context&);
template <>
bool expanded_prefill<192, 128>(const ExpandedArgs<bf16>&, const DeviceRows&, Context&);
template <>
bool expanded_prefill<256, 256>(const ExpandedArgs<bf16>&, const DeviceRows&, Context&);

}  // namespace edgewise::cuda
