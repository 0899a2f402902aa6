// Storing one vector of a token in the KV cache: what kv_write_gqa and kv_write_mla share.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "core/float.h"
#include "core/kv_layout.h"

namespace edgewise {

// Counts of one call, added modulo 2^32 to the op's `stats` i32[2] = {saturated elements, NaN elements}.
struct KvStats {
  std::atomic<int> saturated{0};
  std::atomic<int> nan{0};

  // Fails the kernel when there was a NaN: a poisoned cache must not go unnoticed.
  void publish(const Tensor& stats) const {
    auto* totals = reinterpret_cast<uint32_t*>(stats.data<int32_t>());
    totals[0] += static_cast<uint32_t>(saturated);
    totals[1] += static_cast<uint32_t>(nan);
    if (nan) throw std::runtime_error(std::to_string(nan) + " NaN elements; their tokens were not stored");
  }
};

// Scale of a token's vector in fp8_token: the largest magnitude becomes 448. Never below the smallest normal float, so
// that the quotient keeps its precision; infinities do not count.
inline float kv_token_scale(const float* x, int64_t n) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float a = std::fabs(x[i]);
    if (a > largest && std::isfinite(a)) largest = a;
  }
  return largest == 0 ? 1.0f : std::max(largest / 448.0f, 0x1p-126f);
}

inline int64_t count_nan(const float* x, int64_t n) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += x[i] != x[i];
  return count;
}

// Stores x[0, dim) as `vector` of the token at `slot`; `scale` is the static one. Saturations: elements beyond
// +-448 * scale; with a scale per token only infinities saturate.
inline int64_t kv_store_vector(const KvPool& pool, int32_t slot, int vector, const float* x, float scale) {
  const KvLayout& layout = pool.layout;
  const int64_t page = slot / kPageTokens, token = slot % kPageTokens, dim = layout.dim;
  uint8_t* to = pool.at(page, vector, token);
  if (layout.format == KvFormat::f32) {
    std::memcpy(to, x, dim * sizeof(float));
    return 0;
  }
  if (layout.format == KvFormat::bf16) {
    auto* half = reinterpret_cast<uint16_t*>(to);
    for (int64_t i = 0; i < dim; ++i) half[i] = f32_to_bf16(x[i]);
    return 0;
  }
  float limit = 448.0f;
  if (layout.scaled_by_token()) {
    scale = kv_token_scale(x, dim);
    *pool.scale_at(page, token, vector) = scale;
    limit = 464.0f;  // what rounds to 448 is not clipped
  }
  int64_t saturated = 0;
  for (int64_t i = 0; i < dim; ++i) {
    const float q = x[i] / scale;
    saturated += std::fabs(q) > limit;
    to[i] = f32_to_e4m3(q);
  }
  return saturated;
}

// Widens a contiguous vector of an act tensor.
inline void widen(const Tensor& t, int64_t offset, int64_t n, float* out) {
  if (t.dtype == DType::f32) {
    std::memcpy(out, t.data<float>() + offset, n * sizeof(float));
  } else {
    const uint16_t* h = t.data<uint16_t>() + offset;
    for (int64_t i = 0; i < n; ++i) out[i] = bf16_to_f32(h[i]);
  }
}

}  // namespace edgewise
