// The innermost loops of every matrix product: MR rows of x times 4 rows of w, both contiguous along K.
//
//   v[m * 4 + n] = sum over k of x[m][k] * w[n][k]
//
// Every output has its own accumulator vector, filled in rising k and summed over lanes by one fixed tree. So its bits
// depend on its own two rows alone: not on MR, not on the other rows, not on how work is split between threads.
#pragma once

#include "core/simd.h"

namespace edgewise::EDGEWISE_ISA {

constexpr int kTileRows = 4;     // of x, at most
constexpr int kTileColumns = 4;  // rows of w, always
constexpr int kTileSize = kTileRows * kTileColumns;

#if defined(__AVX512F__)

// In every 128-bit lane: [a0+a2 + a1+a3, b.., c.., d..].
EDGEWISE_INLINE __m512 fold_lanes(__m512 a, __m512 b, __m512 c, __m512 d) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  const __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
  return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}

// The 128-bit lanes L0..L3 of a folded vector are summed as (L0 + L2) + (L1 + L3).
template <int MR>
EDGEWISE_INLINE void sum_tile(const F32 (&acc)[MR][kTileColumns], float* v) {
  __m512 row[MR];
  for (int m = 0; m < MR; ++m) row[m] = fold_lanes(acc[m][0].v, acc[m][1].v, acc[m][2].v, acc[m][3].v);
  if constexpr (MR == 4) {
    const auto halves = [](__m512 a, __m512 b) __attribute__((always_inline)) {
      return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
    };
    const __m512 ab = halves(row[0], row[1]), cd = halves(row[2], row[3]);
    _mm512_storeu_ps(v, _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd)));
  } else {  // one store: narrower ones could not be forwarded to the full load that follows
    __m512 all = _mm512_setzero_ps();
    __m128 sums[MR];
    for (int m = 0; m < MR; ++m) {
      const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(row[m]), _mm512_extractf32x8_ps(row[m], 1));
      sums[m] = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    }
    all = _mm512_insertf32x4(all, sums[0], 0);
    if constexpr (MR > 1) all = _mm512_insertf32x4(all, sums[1], 1);
    if constexpr (MR > 2) all = _mm512_insertf32x4(all, sums[2], 2);
    _mm512_storeu_ps(v, all);
  }
}

#elif defined(__AVX2__)

template <int MR>
EDGEWISE_INLINE void sum_tile(const F32 (&acc)[MR][kTileColumns], float* v) {
  for (int m = 0; m < MR; ++m) {
    const __m256 a = acc[m][0].v, b = acc[m][1].v, c = acc[m][2].v, d = acc[m][3].v;
    const __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    const __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    const __m256d x = _mm256_castps_pd(ab), y = _mm256_castps_pd(cd);
    const __m256 even = _mm256_castpd_ps(_mm256_unpacklo_pd(x, y)), odd = _mm256_castpd_ps(_mm256_unpackhi_pd(x, y));
    const __m256 all = _mm256_add_ps(even, odd);
    _mm_storeu_ps(v + m * 4, _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1)));
  }
}

#else

template <int MR>
EDGEWISE_INLINE void sum_tile(const F32 (&acc)[MR][kTileColumns], float* v) {
  for (int m = 0; m < MR; ++m)
    for (int n = 0; n < kTileColumns; ++n) v[m * 4 + n] = sum(acc[m][n]);
}

#endif

// f32 rows, padded with zeros to a multiple of kStep. The scale of quantized weights is already in w.
struct FloatTile {
  using Element = float;
  static constexpr int kStep = kLanes;

  template <int MR>
  static void run(const float* const* x, const float* const* w, int64_t k, const float* const*, int64_t, float* v) {
    F32 acc[MR][kTileColumns];
    for (int m = 0; m < MR; ++m)
      for (int n = 0; n < kTileColumns; ++n) acc[m][n] = splat(0.0f);
    for (int64_t i = 0; i < k; i += kLanes) {
      F32 a[MR];
#pragma GCC unroll 4
      for (int m = 0; m < MR; ++m) a[m] = load(x[m] + i);
#pragma GCC unroll 4
      for (int n = 0; n < kTileColumns; ++n) {
        const F32 b = load(w[n] + i);
#pragma GCC unroll 4
        for (int m = 0; m < MR; ++m) acc[m][n] = fma(a[m], b, acc[m][n]);
      }
    }
    sum_tile<MR>(acc, v);
  }
};

#if defined(__AVX512F__)

// bf16 rows, padded with zeros to a multiple of 32, multiplied in pairs by vdpbf16ps: the products are exact, the sums
// are f32 (subnormals count as 0). Weights that are exact in bf16 up to a factor (e4m3 and int4 codes) bring that factor
// per `segment` of k, a multiple of 32, in scales[n][s]; segment 0 means none.
struct Bf16Tile {
  using Element = bf16;
  static constexpr int kStep = 32;

  static EDGEWISE_INLINE __m512bh pairs(const bf16* p) { return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p)); }

  template <int MR>
  static EDGEWISE_INLINE void accumulate(const bf16* const* x, const bf16* const* w, int64_t begin, int64_t end,
                                         F32 (&acc)[MR][kTileColumns]) {
    for (int64_t i = begin; i < end; i += 32) {
      __m512bh a[MR];
#pragma GCC unroll 4
      for (int m = 0; m < MR; ++m) a[m] = pairs(x[m] + i);
#pragma GCC unroll 4
      for (int n = 0; n < kTileColumns; ++n) {
        const __m512bh b = pairs(w[n] + i);
#pragma GCC unroll 4
        for (int m = 0; m < MR; ++m) acc[m][n].v = _mm512_dpbf16_ps(acc[m][n].v, a[m], b);
      }
    }
  }

  template <int MR>
  static EDGEWISE_INLINE void clear(F32 (&acc)[MR][kTileColumns]) {
    for (int m = 0; m < MR; ++m)
      for (int n = 0; n < kTileColumns; ++n) acc[m][n] = splat(0.0f);
  }

  template <int MR>
  static void run(const bf16* const* x, const bf16* const* w, int64_t k, const float* const* scales, int64_t segment,
                  float* v) {
    F32 total[MR][kTileColumns];
    clear<MR>(total);
    if (segment == 0) accumulate<MR>(x, w, 0, k, total);
    else if (segment == 32) short_segments<MR>(x, w, k, scales, total);
    else long_segments<MR>(x, w, k, scales, segment, total);
    sum_tile<MR>(total, v);
  }

  // Groups of 32, one vdpbf16ps each: no sum outlives its step, so that 16 totals stay in registers.
  template <int MR>
  static EDGEWISE_INLINE void short_segments(const bf16* const* x, const bf16* const* w, int64_t k,
                                             const float* const* scales, F32 (&total)[MR][kTileColumns]) {
    for (int64_t i = 0; i < k; i += 32) {
      __m512bh a[MR];
#pragma GCC unroll 4
      for (int m = 0; m < MR; ++m) a[m] = pairs(x[m] + i);
#pragma GCC unroll 4
      for (int n = 0; n < kTileColumns; ++n) {
        const __m512bh b = pairs(w[n] + i);
        const F32 scale = splat(scales[n][i / 32]);
#pragma GCC unroll 4
        for (int m = 0; m < MR; ++m)
          total[m][n] = fma(F32{_mm512_dpbf16_ps(_mm512_setzero_ps(), a[m], b)}, scale, total[m][n]);
      }
    }
  }

  template <int MR>
  static EDGEWISE_INLINE void long_segments(const bf16* const* x, const bf16* const* w, int64_t k,
                                            const float* const* scales, int64_t segment,
                                            F32 (&total)[MR][kTileColumns]) {
    for (int64_t begin = 0, s = 0; begin < k; begin += segment, ++s) {
      F32 acc[MR][kTileColumns];
      clear<MR>(acc);
      accumulate<MR>(x, w, begin, begin + segment < k ? begin + segment : k, acc);
#pragma GCC unroll 4
      for (int n = 0; n < kTileColumns; ++n) {
        const F32 scale = splat(scales[n][s]);
#pragma GCC unroll 4
        for (int m = 0; m < MR; ++m) total[m][n] = fma(acc[m][n], scale, total[m][n]);
      }
    }
  }
};

#endif

}  // namespace edgewise::EDGEWISE_ISA
