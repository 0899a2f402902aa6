// core/simd.h for AVX-512 (F, BW, VL, DQ, VBMI, BF16): 16 lanes. Included by core/simd.h only.
#pragma once

namespace edgewise::EDGEWISE_ISA {

constexpr int kLanes = 16;
struct F32 { __m512 v; };

EDGEWISE_INLINE F32 splat(float a) { return {_mm512_set1_ps(a)}; }
EDGEWISE_INLINE F32 operator+(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
EDGEWISE_INLINE F32 operator-(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
EDGEWISE_INLINE F32 operator*(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
EDGEWISE_INLINE F32 operator/(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
EDGEWISE_INLINE F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
EDGEWISE_INLINE F32 max(F32 a, F32 b) { return {_mm512_max_ps(a.v, b.v)}; }
// NaN stays NaN: min and max return their second operand when either is NaN.
EDGEWISE_INLINE F32 clamp(F32 x, float low, float high) {
  return {_mm512_min_ps(_mm512_set1_ps(high), _mm512_max_ps(_mm512_set1_ps(low), x.v))};
}
EDGEWISE_INLINE F32 round(F32 a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
EDGEWISE_INLINE F32 scale_by_power_of_two(F32 a, F32 n) { return {_mm512_scalef_ps(a.v, n.v)}; }
EDGEWISE_INLINE float sum(F32 a) { return _mm512_reduce_add_ps(a.v); }
EDGEWISE_INLINE float largest(F32 a) { return _mm512_reduce_max_ps(a.v); }

EDGEWISE_INLINE __mmask16 first_lanes(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
EDGEWISE_INLINE F32 from_bf16(__m256i h) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))}; }

// e4m3 moved to the place of an f16 is 2^8 too small, subnormals included; 0x7f becomes an f16 NaN first.
EDGEWISE_INLINE F32 from_e4m3(__m128i b) {
  const __m256i w = _mm256_cvtepu8_epi16(b);
  const __m256i rest = _mm256_and_si256(w, _mm256_set1_epi16(0x7f));
  const __mmask16 nan = _mm256_cmpeq_epi16_mask(rest, _mm256_set1_epi16(0x7f));
  const __m256i magnitude = _mm256_mask_mov_epi16(_mm256_slli_epi16(rest, 7), nan, _mm256_set1_epi16(0x7e00));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(w, _mm256_set1_epi16(0x80)), 8);
  return {_mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(magnitude, sign)), _mm512_set1_ps(256.0f))};
}

EDGEWISE_INLINE F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
EDGEWISE_INLINE F32 load(const bf16* p) { return from_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
EDGEWISE_INLINE F32 load(const f16* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
EDGEWISE_INLINE F32 load(const e4m3* p) { return from_e4m3(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }

EDGEWISE_INLINE F32 load_partial(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
EDGEWISE_INLINE F32 load_partial(const bf16* p, int n) { return from_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p)); }
EDGEWISE_INLINE F32 load_partial(const f16* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}
EDGEWISE_INLINE F32 load_partial(const e4m3* p, int n) { return from_e4m3(_mm_maskz_loadu_epi8(first_lanes(n), p)); }

// By integer arithmetic, not vcvtneps2bf16: that one flushes subnormals.
EDGEWISE_INLINE __m256i to_bf16(F32 a) {
  const __m512i u = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  const __m512i kept = _mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(kept, 16));
}
EDGEWISE_INLINE void store(float* p, F32 a) { _mm512_storeu_ps(p, a.v); }
EDGEWISE_INLINE void store(bf16* p, F32 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), to_bf16(a)); }
EDGEWISE_INLINE void store_partial(float* p, F32 a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }
EDGEWISE_INLINE void store_partial(bf16* p, F32 a, int n) { _mm256_mask_storeu_epi16(p, first_lanes(n), to_bf16(a)); }

}  // namespace edgewise::EDGEWISE_ISA
