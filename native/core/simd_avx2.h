// core/simd.h for AVX2 with FMA and F16C: 8 lanes. Included by core/simd.h only.
#pragma once

namespace edgewise::EDGEWISE_ISA {

constexpr int kLanes = 8;
struct F32 { __m256 v; };

EDGEWISE_INLINE F32 splat(float a) { return {_mm256_set1_ps(a)}; }
EDGEWISE_INLINE F32 operator+(F32 a, F32 b) { return {_mm256_add_ps(a.v, b.v)}; }
EDGEWISE_INLINE F32 operator-(F32 a, F32 b) { return {_mm256_sub_ps(a.v, b.v)}; }
EDGEWISE_INLINE F32 operator*(F32 a, F32 b) { return {_mm256_mul_ps(a.v, b.v)}; }
EDGEWISE_INLINE F32 operator/(F32 a, F32 b) { return {_mm256_div_ps(a.v, b.v)}; }
EDGEWISE_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
EDGEWISE_INLINE F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.v, b.v)}; }
// NaN stays NaN: min and max return their second operand when either is NaN.
EDGEWISE_INLINE F32 clamp(F32 x, float low, float high) {
  return {_mm256_min_ps(_mm256_set1_ps(high), _mm256_max_ps(_mm256_set1_ps(low), x.v))};
}
EDGEWISE_INLINE F32 round(F32 a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
// In two halves, so that neither factor leaves the range of f32 where the product is subnormal.
EDGEWISE_INLINE F32 scale_by_power_of_two(F32 a, F32 n) {
  const __m256i e = _mm256_cvtps_epi32(n.v);
  const __m256i half = _mm256_srai_epi32(e, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256 f = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
  const __m256 g = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(e, half), bias), 23));
  return {_mm256_mul_ps(_mm256_mul_ps(a.v, f), g)};
}
EDGEWISE_INLINE float sum(F32 a) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
EDGEWISE_INLINE float largest(F32 a) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}

EDGEWISE_INLINE F32 from_bf16(__m128i h) { return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16))}; }

// e4m3 moved to the place of an f16 is 2^8 too small, subnormals included; 0x7f becomes an f16 NaN first.
EDGEWISE_INLINE F32 from_e4m3(__m128i b) {
  const __m128i w = _mm_cvtepu8_epi16(b);
  const __m128i rest = _mm_and_si128(w, _mm_set1_epi16(0x7f));
  const __m128i nan = _mm_cmpeq_epi16(rest, _mm_set1_epi16(0x7f));
  const __m128i magnitude = _mm_blendv_epi8(_mm_slli_epi16(rest, 7), _mm_set1_epi16(0x7e00), nan);
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(w, _mm_set1_epi16(0x80)), 8);
  return {_mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(magnitude, sign)), _mm256_set1_ps(256.0f))};
}

EDGEWISE_INLINE F32 load(const float* p) { return {_mm256_loadu_ps(p)}; }
EDGEWISE_INLINE F32 load(const bf16* p) { return from_bf16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
EDGEWISE_INLINE F32 load(const f16* p) { return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))}; }
EDGEWISE_INLINE F32 load(const e4m3* p) { return from_e4m3(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))); }

EDGEWISE_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
EDGEWISE_INLINE F32 load_partial(const float* p, int n) { return {_mm256_maskload_ps(p, first_lanes(n))}; }
template <class T>
EDGEWISE_INLINE F32 load_partial(const T* p, int n) {
  T padded[kLanes] = {};
  for (int i = 0; i < n; ++i) padded[i] = p[i];
  return load(padded);
}

EDGEWISE_INLINE __m128i to_bf16(F32 a) {
  const __m256i u = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
  const __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
  const __m256 nan = _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q);
  const __m256 kept = _mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan);
  const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(kept), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}
EDGEWISE_INLINE void store(float* p, F32 a) { _mm256_storeu_ps(p, a.v); }
EDGEWISE_INLINE void store(bf16* p, F32 a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), to_bf16(a)); }
EDGEWISE_INLINE void store_partial(float* p, F32 a, int n) { _mm256_maskstore_ps(p, first_lanes(n), a.v); }
EDGEWISE_INLINE void store_partial(bf16* p, F32 a, int n) {
  bf16 all[kLanes];
  store(all, a);
  for (int i = 0; i < n; ++i) p[i] = all[i];
}

}  // namespace edgewise::EDGEWISE_ISA
