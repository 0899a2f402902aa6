// Storing the tokens of a step in the KV cache on the CPU: the kernels of kv_write_gqa and kv_write_mla. Loops are
// written without branches, for the compiler's vectorizer; core/kv_store.h is what they must agree with.
#pragma once

#include <algorithm>
#include <cstring>

#include "core/kv_store.h"
#include "core/simd.h"

namespace edgewise::EDGEWISE_ISA {

// e4m3 of x / scale to nearest even, clipped to +-448; returns how many magnitudes were above `limit`.
EDGEWISE_INLINE int64_t narrow_e4m3(const float* x, int64_t n, float scale, float limit, uint8_t* out) {
  int32_t saturated = 0;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float q = x[i] / scale;
    const uint32_t bits = __builtin_bit_cast(uint32_t, q);
    const uint32_t a = bits & 0x7fffffffu;
    saturated += a > __builtin_bit_cast(uint32_t, limit) ? 1 : 0;
    const uint32_t b = a > 0x43e00000u ? 0x43e00000u : a;
    // Below 2^-6 a multiple of 2^-9: adding 2^14 rounds to one.
    const float shifted = __builtin_bit_cast(float, b) + 16384.0f;
    const uint32_t small = __builtin_bit_cast(uint32_t, shifted) - 0x46800000u;
    const uint32_t normal = ((b + 0x7ffffu + ((b >> 20) & 1u)) >> 20) - (120u << 3);
    out[i] = static_cast<uint8_t>((b < 0x3c800000u ? small : normal) | (bits >> 24 & 0x80u));
  }
  return saturated;
}

EDGEWISE_INLINE int64_t nan_elements(const float* x, int64_t n) {
  int32_t count = 0;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) count += (__builtin_bit_cast(uint32_t, x[i]) & 0x7fffffffu) > 0x7f800000u ? 1 : 0;
  return count;
}

EDGEWISE_INLINE float token_scale(const float* x, int64_t n) {
  F32 top = splat(0.0f);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F32 v = load(x + i);
    top = max(top, max(v, splat(0.0f) - v));
  }
  float found = largest(top);
  for (; i < n; ++i) found = std::max(found, std::fabs(x[i]));
  // Infinities do not count: the rare row with one takes the slow way.
  return std::isinf(found) ? kv_token_scale(x, n) : found == 0 ? 1.0f : std::max(found / 448.0f, 0x1p-126f);
}

EDGEWISE_INLINE int64_t store_vector(const KvPool& pool, int32_t slot, int vector, const float* x, float scale) {
  const KvLayout& layout = pool.layout;
  const int64_t page = slot / kPageTokens, token = slot % kPageTokens, n = layout.dim;
  uint8_t* to = pool.at(page, vector, token);
  if (layout.format == KvFormat::f32) {
    std::memcpy(to, x, n * sizeof(float));
  } else if (layout.format == KvFormat::bf16) {
    auto* half = reinterpret_cast<bf16*>(to);
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(half + i, load(x + i));
    if (i < n) store_partial(half + i, load_partial(x + i, static_cast<int>(n - i)), static_cast<int>(n - i));
  } else if (layout.format == KvFormat::fp8) {
    return narrow_e4m3(x, n, scale, 448.0f, to);
  } else {
    const float own = token_scale(x, n);
    *pool.scale_at(page, token, vector) = own;
    return narrow_e4m3(x, n, own, 464.0f, to);
  }
  return 0;
}

// Stores all tokens. row(t, out) widens the vectors of token t to f32 in canonical order; the static scale of a vector
// is `first_scale` in the first half of them and `second_scale` after it.
template <class Row>
void write_tokens(const KvPool& pool, const Tensor& write_slots, const Tensor& stats, float first_scale,
                  float second_scale, Context& context, Row row) {
  const KvLayout& layout = pool.layout;
  const int64_t tokens = write_slots.shape[0], width = layout.vectors * layout.dim;
  const int64_t ld = (width + 15) / 16 * 16;
  auto* memory = static_cast<float*>(context.scratch(context.workers() * ld * sizeof(float)));
  KvStats counts;
  context.parallel_for(tokens, std::max<int64_t>(1, 16384 / width), [&](int64_t begin, int64_t end, int worker) {
    float* x = memory + worker * ld;
    for (int64_t t = begin; t < end; ++t) {
      const int32_t slot = write_slots.data<int32_t>()[t];
      check_slot(slot, pool.pages());
      if (slot < 0) continue;
      row(t, x);
      if (const int64_t nan = nan_elements(x, width)) {
        counts.nan += static_cast<int>(nan);
        continue;
      }
      int64_t saturated = 0;
      for (int v = 0; v < layout.vectors; ++v)
        saturated += store_vector(pool, slot, v, x + v * layout.dim, 2 * v < layout.vectors ? first_scale : second_scale);
      if (saturated > 0) counts.saturated += static_cast<int>(saturated);
    }
  });
  counts.publish(stats);
}

// n elements as f32, nothing beyond.
template <class T>
EDGEWISE_INLINE void widen_elements(const T* x, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(out + i, load(x + i));
  for (; i < n; ++i) out[i] = widen(x[i]);
}

}  // namespace edgewise::EDGEWISE_ISA
