// Chunks of attention_gqa (more than 8 new tokens, or all rows) on tensor cores: cuda/attention_prefill.cuh over GQA pages.
#pragma once

#include "cuda/attention_prefill.cuh"
#include "ops/attention_gqa/cuda.cuh"

namespace edgewise::cuda {

template <class Kv>
struct GqaSource {
  static constexpr bool kSmall = true;
  GqaArgs<bf16> a;

  template <class Shared>
  __device__ void stage(const DeviceRow& row, const DeviceRows& rows, int kv_head, int first, int end, const Shared& shared,
                        Fault fault) const {
    const int stored = max(0, min(kPrefillTile, row.past - first));
    if (stored > 0) {
      const int64_t page = rows.page(row, first / kPageTokens, fault);
      const uint8_t* head = a.pool + page * a.order.page_bytes() + kv_head * a.order.head_bytes();
      if (a.order.tiled) {
        stage_keys(head, stored, shared);
        stage_values(head, stored, shared);
      } else {
        stage_elements(head, stored, shared);
      }
      if (threadIdx.x < stored) {
        float k = sizeof(Kv) == 1 ? a.k_scale : 1.0f, v = sizeof(Kv) == 1 ? a.v_scale : 1.0f;
        if (a.scales) {
          const float* scales = a.scales + (page * kPageTokens + threadIdx.x) * 2 * a.kv_heads + kv_head;
          k = scales[0];
          v = scales[a.kv_heads];
        }
        set_factors(threadIdx.x, k, v, shared);
      }
    }
    if (stored == kPrefillTile) return;
    // New tokens, and zeros behind them.
    const int chunks = a.dim / 8;
    for (int i = threadIdx.x; i < (kPrefillTile - stored) * chunks; i += kPrefillThreads) {
      const int token = stored + i / chunks, c = i % chunks, position = first + token;
      uint4 k = make_uint4(0, 0, 0, 0), v = k;
      if (position < end) {
        const int64_t at = row.begin + position - row.past;
        k = *reinterpret_cast<const uint4*>(a.k + at * a.k_token + kv_head * a.k_head + 8 * c);
        v = *reinterpret_cast<const uint4*>(a.v + at * a.v_token + kv_head * a.v_head + 8 * c);
      }
      *reinterpret_cast<uint4*>(shared.k.chunk(token, c)) = bf16x8_to_f16x8(k);
      *reinterpret_cast<uint4*>(shared.v.chunk(token, c)) = bf16x8_to_f16x8(v);
      if (c == 0) set_factors(token, 1, 1, shared);
    }
  }

 private:
  // The low two of the codes.
  __device__ static uint32_t codes(uint32_t v) { return e4m3x2_to_f16x2(static_cast<uint16_t>(v)); }
  __device__ static f16 clipped(Kv v) { return from_float<f16>(fminf(fmaxf(to_float(v), -65504.0f), 65504.0f)); }

  template <class Shared>
  __device__ void set_factors(int token, float k, float v, const Shared& shared) const {
    shared.key_factor[token] = k * a.softmax_scale * kPrefillLog2e;
    shared.value_factor[token] = v;
  }

  // 16 bytes of a token's key at a time, in the order of memory (kv_gqa_layout.cuh).
  template <class Shared>
  __device__ void stage_keys(const uint8_t* head, int stored, const Shared& shared) const {
    const int bytes = a.order.vector_bytes;
    for (int i = threadIdx.x; i < 4 * bytes; i += kPrefillThreads) {
      const int group = i / bytes, in_group = i % bytes, token = 16 * group + in_group / 4 % 16;
      if (token >= stored) continue;
      const uint4 raw = *reinterpret_cast<const uint4*>(head + group * 32 * bytes + in_group * 16);
      const int c = (in_group / 64 * 64 + in_group % 4 * 16) / static_cast<int>(8 * sizeof(Kv));
      if constexpr (sizeof(Kv) == 2) {
        *reinterpret_cast<uint4*>(shared.k.chunk(token, c)) = bf16x8_to_f16x8(raw);
      } else {
        *reinterpret_cast<uint4*>(shared.k.chunk(token, c)) = make_uint4(codes(raw.x), codes(raw.x >> 16),
                                                                         codes(raw.y), codes(raw.y >> 16));
        *reinterpret_cast<uint4*>(shared.k.chunk(token, c + 1)) = make_uint4(codes(raw.z), codes(raw.z >> 16),
                                                                             codes(raw.w), codes(raw.w >> 16));
      }
    }
  }

  // 4 tokens of 4 (fp8) or 2 (bf16) dims at a time.
  template <class Shared>
  __device__ void stage_values(const uint8_t* head, int stored, const Shared& shared) const {
    constexpr int kDims = 4 / static_cast<int>(sizeof(Kv));
    const int bytes = a.order.vector_bytes;
    for (int i = threadIdx.x; i < 4 * bytes; i += kPrefillThreads) {
      const int group = i / bytes, in_group = i % bytes, slot = in_group % 32;
      const int t = slot / 8, g = (slot - 2 * t) & 7, first = 16 * group + 4 * t;
      if (first >= stored) continue;
      const uint4 raw = *reinterpret_cast<const uint4*>(head + (group * 32 + 16) * bytes + in_group * 16);
      const int dim = kDims * (in_group / 32 * 8 + g);
      if constexpr (sizeof(Kv) == 2) {
        // Words: dim 0 of tokens 0 and 1, of 2 and 3; then dim 1.
        const uint32_t token[4] = {__byte_perm(raw.x, raw.z, 0x5410), __byte_perm(raw.x, raw.z, 0x7632),
                                   __byte_perm(raw.y, raw.w, 0x5410), __byte_perm(raw.y, raw.w, 0x7632)};
        for (int j = 0; j < 4 && first + j < stored; ++j) *reinterpret_cast<uint32_t*>(shared.v.element(first + j, dim)) = bf16x2_to_f16x2(token[j]);
      } else {
        // Word d: dim d of 4 tokens. Pairs of dims of one token, tokens 0, 1 in low and 2, 3 in high halves.
        const uint32_t low0 = __byte_perm(raw.x, raw.y, 0x5140), high0 = __byte_perm(raw.x, raw.y, 0x7362);
        const uint32_t low1 = __byte_perm(raw.z, raw.w, 0x5140), high1 = __byte_perm(raw.z, raw.w, 0x7362);
        const uint2 token[4] = {{codes(low0), codes(low1)},
                                {codes(low0 >> 16), codes(low1 >> 16)},
                                {codes(high0), codes(high1)},
                                {codes(high0 >> 16), codes(high1 >> 16)}};
        for (int j = 0; j < 4 && first + j < stored; ++j) *reinterpret_cast<uint2*>(shared.v.element(first + j, dim)) = token[j];
      }
    }
  }

  // Any order.
  template <class Shared>
  __device__ void stage_elements(const uint8_t* head, int stored, const Shared& shared) const {
    constexpr int kBytes = sizeof(Kv);
    for (int i = threadIdx.x; i < stored * a.dim; i += kPrefillThreads) {
      const int token = i / a.dim, d = i % a.dim;
      *shared.k.element(token, d) = clipped(*reinterpret_cast<const Kv*>(head + a.order.key_offset(token, d * kBytes)));
      *shared.v.element(token, d) = clipped(*reinterpret_cast<const Kv*>(head + a.order.value_offset(token, d * kBytes)));
    }
  }
};

inline PrefillArgs prefill_args(const GqaArgs<bf16>& a, int least) {
  return {a.q, a.out, a.q_token, a.q_head, a.out_token, a.out_head, a.kv_heads, a.group, a.dim, a.dim, least};
}

// Rows with at least `least` new tokens, head dims up to kDim; tensors as fits_tensor_cores says.
template <int kDim>
void gqa_prefill(const GqaArgs<bf16>& a, int least, const DeviceRows& rows, Context& context);
template <>
void gqa_prefill<64>(const GqaArgs<bf16>&, int, const DeviceRows&, Context&);
template <>
void gqa_prefill<128>(const GqaArgs<bf16>&, int, const DeviceRows&, Context&);
template <>
void gqa_prefill<256>(const GqaArgs<bf16>&, int, const DeviceRows&, Context&);

}  // namespace edgewise::cuda
