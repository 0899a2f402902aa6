// Products of bf16 matrices on AVX-512: 32 multiply-adds an instruction, twice those of f32, accumulated in f32. The
// right factor lies in pairs: an uint32_t holds two bf16 of consecutive depth, the lower one in its low half.
//
//   c[M, N] (+)= a[M, depth] b[depth, N]      a: bf16 rows as they are;  b: [depth / 2, N] pairs
#pragma once

#include "core/attention_tile.h"

#if defined(__AVX512BF16__)

namespace edgewise::EDGEWISE_ISA {

template <int MR, int NV>
EDGEWISE_INLINE void multiply_pairs_block(const bf16* a, int64_t ld_a, const uint32_t* b, int64_t ld_b, float* c,
                                          int64_t ld_c, int64_t pairs, bool add) {
  __m512 acc[MR][NV];
  for (int i = 0; i < MR; ++i)
    for (int j = 0; j < NV; ++j) acc[i][j] = add ? _mm512_loadu_ps(c + i * ld_c + j * 16) : _mm512_setzero_ps();
  for (int64_t k = 0; k < pairs; ++k) {
    __m512bh row[NV];
    for (int j = 0; j < NV; ++j) row[j] = (__m512bh)_mm512_loadu_si512(b + k * ld_b + j * 16);
    for (int i = 0; i < MR; ++i) {
      int32_t two;
      std::memcpy(&two, a + i * ld_a + 2 * k, sizeof two);
      const __m512bh x = (__m512bh)_mm512_set1_epi32(two);
      for (int j = 0; j < NV; ++j) acc[i][j] = _mm512_dpbf16_ps(acc[i][j], x, row[j]);
    }
  }
  for (int i = 0; i < MR; ++i)
    for (int j = 0; j < NV; ++j) _mm512_storeu_ps(c + i * ld_c + j * 16, acc[i][j]);
}

template <int NV>
inline void multiply_pairs_strip(const bf16* a, int64_t ld_a, const uint32_t* b, int64_t ld_b, float* c, int64_t ld_c,
                                 int64_t m, int64_t pairs, bool add) {
  for (; m >= 6; m -= 6, a += 6 * ld_a, c += 6 * ld_c) multiply_pairs_block<6, NV>(a, ld_a, b, ld_b, c, ld_c, pairs, add);
  switch (m) {
    case 1: return multiply_pairs_block<1, NV>(a, ld_a, b, ld_b, c, ld_c, pairs, add);
    case 2: return multiply_pairs_block<2, NV>(a, ld_a, b, ld_b, c, ld_c, pairs, add);
    case 3: return multiply_pairs_block<3, NV>(a, ld_a, b, ld_b, c, ld_c, pairs, add);
    case 4: return multiply_pairs_block<4, NV>(a, ld_a, b, ld_b, c, ld_c, pairs, add);
    case 5: return multiply_pairs_block<5, NV>(a, ld_a, b, ld_b, c, ld_c, pairs, add);
    default: return;
  }
}

// n a multiple of 16.
inline void multiply_pairs(const bf16* a, int64_t ld_a, const uint32_t* b, int64_t ld_b, float* c, int64_t ld_c,
                           int64_t m, int64_t n, int64_t pairs, bool add) {
  int64_t j = 0;
  for (; j + 64 <= n; j += 64) multiply_pairs_strip<4>(a, ld_a, b + j, ld_b, c + j, ld_c, m, pairs, add);
  for (; j < n; j += 16) multiply_pairs_strip<1>(a, ld_a, b + j, ld_b, c + j, ld_c, m, pairs, add);
}

// out[0, n) pairs each an element of `low` with the one of `high`, rounded to bf16; n a multiple of 16.
inline void pair_rows(const float* low, const float* high, int64_t n, uint32_t* out) {
  alignas(64) static constexpr uint16_t kInterleave[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                           8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i order = _mm512_load_si512(kInterleave);
  for (int64_t i = 0; i < n; i += 16) {
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(high + i), _mm512_loadu_ps(low + i));
    _mm512_storeu_si512(out + i, _mm512_permutexvar_epi16(order, both));
  }
}

// out[0, n) = x rounded to bf16; n a multiple of 16.
inline void round_row(const float* x, int64_t n, bf16* out) {
  for (int64_t i = 0; i < n; i += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i)));
}

// out[j, i] = in[i, j] of a block of 16 x 16: four rounds that exchange halves of ever larger parts.
inline void transpose_block(const uint32_t* in, int64_t ld_in, uint32_t* out, int64_t ld_out) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(in + i * ld_in);
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {  // r[i + c]: column c of each lane's 4 x 4 block of rows i .. i + 3
      r[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
  for (int c = 0; c < 4; ++c) {
    const __m512i ab_even = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88), ab_odd = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
    const __m512i cd_even = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
    const __m512i cd_odd = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
    _mm512_storeu_si512(out + c * ld_out, _mm512_shuffle_i32x4(ab_even, cd_even, 0x88));
    _mm512_storeu_si512(out + (4 + c) * ld_out, _mm512_shuffle_i32x4(ab_odd, cd_odd, 0x88));
    _mm512_storeu_si512(out + (8 + c) * ld_out, _mm512_shuffle_i32x4(ab_even, cd_even, 0xdd));
    _mm512_storeu_si512(out + (12 + c) * ld_out, _mm512_shuffle_i32x4(ab_odd, cd_odd, 0xdd));
  }
}

}  // namespace edgewise::EDGEWISE_ISA

#endif
