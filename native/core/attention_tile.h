// The inner loops of attention on the CPU, once per instruction set: products of small f32 matrices and the online
// softmax over tiles of the context. Attention over paged rows is core/attention_paged.h.
//
//   S[M, n] = Q[M, Dk] K[n, Dk]^T      dot_rows: both operands contiguous along Dk, four sums reduced at a time
//   P, max, sum = softmax step of S    fold_scores
//   O[M, Dv] += P[M, n] V[n, Dv]       multiply: register tiles of outer products, no horizontal sums
//
// A multiply-add of kLanes floats per lane group; both products keep 16 or more sums in registers, so that the
// multiply-add units are never waited for.
#pragma once

#include <cmath>
#include <cstring>
#include <type_traits>

#include "core/simd.h"

namespace edgewise::EDGEWISE_ISA {

// Inner dimensions are padded with zeros to a multiple of this for every instruction set.
constexpr int64_t kPad = 16;
constexpr int64_t padded(int64_t n) { return (n + kPad - 1) / kPad * kPad; }
constexpr bool kManyRegisters = kLanes == 16;

// out[0, 4) = the sums of the lanes of a, b, c and d.
EDGEWISE_INLINE void store_sums(float* out, F32 a, F32 b, F32 c, F32 d) {
#if defined(__AVX512F__)
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a.v, b.v), _mm512_unpackhi_ps(a.v, b.v));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c.v, d.v), _mm512_unpackhi_ps(c.v, d.v));
  const __m512 s = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
#elif defined(__AVX2__)
  const __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a.v, b.v), _mm256_hadd_ps(c.v, d.v));
  _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1)));
#else
  out[0] = sum(a);
  out[1] = sum(b);
  out[2] = sum(c);
  out[3] = sum(d);
#endif
}

// out[i * ld_out + j] = a[i] . b[j] for MR rows of a and NR (a multiple of 4) of b.
template <int MR, int NR>
EDGEWISE_INLINE void dot_block(const float* a, int64_t ld_a, const float* b, int64_t ld_b, float* out, int64_t ld_out,
                               int64_t depth) {
  F32 acc[MR][NR];
  for (int i = 0; i < MR; ++i)
    for (int j = 0; j < NR; ++j) acc[i][j] = splat(0.0f);
  for (int64_t k = 0; k < depth; k += kLanes) {
    F32 row[MR];
    for (int i = 0; i < MR; ++i) row[i] = load(a + i * ld_a + k);
    for (int j = 0; j < NR; ++j) {
      const F32 other = load(b + j * ld_b + k);
      for (int i = 0; i < MR; ++i) acc[i][j] = fma(row[i], other, acc[i][j]);
    }
  }
  for (int i = 0; i < MR; ++i)
    for (int j = 0; j < NR; j += 4)
      store_sums(out + i * ld_out + j, acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
}

template <int MR, int NR>
inline void dot_strip(const float* a, int64_t ld_a, const float* b, int64_t ld_b, float* out, int64_t ld_out, int64_t n,
                      int64_t depth) {
  int64_t j = 0;
  for (; j + NR <= n; j += NR) dot_block<MR, NR>(a, ld_a, b + j * ld_b, ld_b, out + j, ld_out, depth);
  for (; j < n; j += 4) dot_block<MR, 4>(a, ld_a, b + j * ld_b, ld_b, out + j, ld_out, depth);
}

// out[m, n] = a[m, depth] b[n, depth]^T; n a multiple of 4, depth of kPad.
inline void dot_rows(const float* a, int64_t ld_a, const float* b, int64_t ld_b, float* out, int64_t ld_out, int64_t m,
                     int64_t n, int64_t depth) {
  constexpr int kRows = kManyRegisters ? 4 : 2;
  constexpr int kStrip = 16;  // rows of b that stay in the first-level cache while a passes by
  for (int64_t j = 0; j < n; j += kStrip) {
    const int64_t width = n - j < kStrip ? n - j : kStrip;
    const float* strip = b + j * ld_b;
    int64_t i = 0;
    for (; i + kRows <= m; i += kRows)
      dot_strip<kRows, 4>(a + i * ld_a, ld_a, strip, ld_b, out + i * ld_out + j, ld_out, width, depth);
    const float* rest = a + i * ld_a;
    float* to = out + i * ld_out + j;
    if (m - i == 1) dot_strip<1, 8>(rest, ld_a, strip, ld_b, to, ld_out, width, depth);
    if (m - i == 2) dot_strip<2, kManyRegisters ? 8 : 4>(rest, ld_a, strip, ld_b, to, ld_out, width, depth);
    if (m - i == 3) dot_strip<3, 4>(rest, ld_a, strip, ld_b, to, ld_out, width, depth);
  }
}

// c[MR, NV * kLanes] (+)= a[MR, depth] b[depth, NV * kLanes].
template <int MR, int NV>
EDGEWISE_INLINE void multiply_block(const float* a, int64_t ld_a, const float* b, int64_t ld_b, float* c, int64_t ld_c,
                                    int64_t depth, bool add) {
  F32 acc[MR][NV];
  for (int i = 0; i < MR; ++i)
    for (int j = 0; j < NV; ++j) acc[i][j] = add ? load(c + i * ld_c + j * kLanes) : splat(0.0f);
  for (int64_t k = 0; k < depth; ++k) {
    F32 row[NV];
    for (int j = 0; j < NV; ++j) row[j] = load(b + k * ld_b + j * kLanes);
    for (int i = 0; i < MR; ++i) {
      const F32 x = splat(a[i * ld_a + k]);
      for (int j = 0; j < NV; ++j) acc[i][j] = fma(x, row[j], acc[i][j]);
    }
  }
  for (int i = 0; i < MR; ++i)
    for (int j = 0; j < NV; ++j) store(c + i * ld_c + j * kLanes, acc[i][j]);
}

// One strip of columns for all rows.
template <int NV, int NVFew>
inline void multiply_strip(const float* a, int64_t ld_a, const float* b, int64_t ld_b, float* c, int64_t ld_c,
                           int64_t m, int64_t depth, bool add) {
  int64_t i = 0;
  for (; i + 6 <= m; i += 6) multiply_block<6, NV>(a + i * ld_a, ld_a, b, ld_b, c + i * ld_c, ld_c, depth, add);
  a += i * ld_a;
  c += i * ld_c;
  switch (m - i) {
    case 1: return multiply_block<1, NV>(a, ld_a, b, ld_b, c, ld_c, depth, add);
    case 2: return multiply_block<2, NV>(a, ld_a, b, ld_b, c, ld_c, depth, add);
    case 3: return multiply_block<3, NV>(a, ld_a, b, ld_b, c, ld_c, depth, add);
    case 4: return multiply_block<4, NV>(a, ld_a, b, ld_b, c, ld_c, depth, add);
    case 5: return multiply_block<5, NV>(a, ld_a, b, ld_b, c, ld_c, depth, add);
    default: return;
  }
}

// c[m, n] (+)= a[m, depth] b[depth, n]; n a multiple of kLanes.
inline void multiply(const float* a, int64_t ld_a, const float* b, int64_t ld_b, float* c, int64_t ld_c, int64_t m,
                     int64_t n, int64_t depth, bool add) {
  constexpr int kWide = kManyRegisters ? 4 : 2;
  int64_t j = 0;
  if (m <= 2)  // few rows: more columns, for enough independent sums
    for (; j + 2 * kWide * kLanes <= n; j += 2 * kWide * kLanes) {
      if (m == 1) multiply_block<1, 2 * kWide>(a, ld_a, b + j, ld_b, c + j, ld_c, depth, add);
      else multiply_block<2, 2 * kWide>(a, ld_a, b + j, ld_b, c + j, ld_c, depth, add);
    }
  for (; j + kWide * kLanes <= n; j += kWide * kLanes)
    multiply_strip<kWide, kWide>(a, ld_a, b + j, ld_b, c + j, ld_c, m, depth, add);
  for (; j < n; j += kLanes) multiply_strip<1, 1>(a, ld_a, b + j, ld_b, c + j, ld_c, m, depth, add);
}

// Running softmax of one query.
struct SoftmaxState {
  float largest = -INFINITY;
  float total = 0;
};

// Turns scores[0, n) of which `visible` count into weights relative to the running maximum, zeros beyond, and returns
// the factor by which what was accumulated before shrinks. n is a multiple of kPad.
EDGEWISE_INLINE float fold_scores(float* scores, int64_t visible, int64_t n, SoftmaxState& state) {
  if (visible <= 0) {
    std::memset(scores, 0, n * sizeof(float));
    return 1;
  }
  for (int64_t i = visible; i < n; ++i) scores[i] = -1e30f;  // exp gives exactly 0
  F32 top = load(scores);
  for (int64_t i = kLanes; i < n; i += kLanes) top = max(top, load(scores + i));
  const float before = state.largest, largest_now = largest(top);
  const float now = largest_now > before ? largest_now : before;
  F32 total = splat(0.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const F32 w = exp(load(scores + i) - splat(now));
    total = total + w;
    store(scores + i, w);
  }
  const float shrink = before == now ? 1.0f : before == -INFINITY ? 0.0f : std::exp(before - now);
  state.largest = now;
  state.total = state.total * shrink + sum(total);
  return shrink;
}

EDGEWISE_INLINE void scale_row(float* row, int64_t n, float factor) {
  const F32 f = splat(factor);
  for (int64_t i = 0; i < n; i += kLanes) store(row + i, load(row + i) * f);
}

// kLanes e4m3 codes as e4m3 * 2^-8: moved to the place of an f16, whose exponent bias is 8 higher. A third of the
// instructions of load(), and wrong for the NaN codes alone, which kv_write never stores.
EDGEWISE_INLINE F32 load_small(const e4m3* p) {
#if defined(__AVX512F__)
  const __m256i w = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(w, 7), _mm256_set1_epi16(static_cast<int16_t>(0xbf80))))};
#elif defined(__AVX2__)
  const __m128i w = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(w, 7), _mm_set1_epi16(static_cast<int16_t>(0xbf80))))};
#else
  return load(p) * splat(1.0f / 256);
#endif
}
template <class T>
EDGEWISE_INLINE F32 load_small(const T* p) {
  return load(p);
}

// out[0, padded(n)) = x * scale, zeros beyond n.
template <class T>
EDGEWISE_INLINE void widen_row(const T* x, int64_t n, float scale, float* out) {
  constexpr bool kSmall = std::is_same_v<T, e4m3>;
  const F32 f = splat(scale), g = splat(kSmall ? scale * 256 : scale);
  int64_t i = 0;
  if (kSmall || scale != 1.0f)
    for (; i + kLanes <= n; i += kLanes) store(out + i, load_small(x + i) * g);
  else
    for (; i + kLanes <= n; i += kLanes) store(out + i, load(x + i));
  if (i < n) {
    store(out + i, load_partial(x + i, static_cast<int>(n - i)) * f);
    i += kLanes;
  }
  for (; i < padded(n); i += kLanes) store(out + i, splat(0.0f));
}

}  // namespace edgewise::EDGEWISE_ISA
