// From stored weights to the rows that tile.h multiplies: 4 rows at a time into a buffer that stays in the L1 cache,
// once per tile of columns however many rows of x follow.
#pragma once

#include "ops/linear_common/tile.h"
#include "ops/linear_common/weights.h"

namespace edgewise::EDGEWISE_ISA {

EDGEWISE_INLINE int64_t round_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

EDGEWISE_INLINE float scale_at(const WeightView& w, int64_t i) {
  if (w.scale_dtype == DType::f32) return reinterpret_cast<const float*>(w.scale)[i];
  if (w.scale_dtype == DType::bf16) return widen(reinterpret_cast<const bf16*>(w.scale)[i]);
  return widen(reinterpret_cast<const f16*>(w.scale)[i]);
}

// ---- to f32, the scale applied ----

template <class T>
EDGEWISE_INLINE void decode_scaled(const T* from, int64_t count, float scale, float* to) {
  const F32 s = splat(scale);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i) * s);
  const int rest = static_cast<int>(count - i);
  if (rest > 0) store_partial(to + i, load_partial(from + i, rest) * s, rest);
}

template <class T>
EDGEWISE_INLINE void decode_dense(const T* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, load(from + i));
  const int rest = static_cast<int>(count - i);
  if (rest > 0) store_partial(to + i, load_partial(from + i, rest), rest);
}

// Row n of w into `to`, zeros up to `padded`.
static inline void decode_row(const WeightView& w, int64_t n, int64_t padded, float* to) {
  const int64_t first_scale = n / w.block_n * w.segments;
  if (w.form == WeightForm::dense) {
    const char* row = w.data + n * w.k * (w.dtype == DType::f32 ? 4 : 2);
    if (w.dtype == DType::f32) decode_dense(reinterpret_cast<const float*>(row), w.k, to);
    else if (w.dtype == DType::bf16) decode_dense(reinterpret_cast<const bf16*>(row), w.k, to);
    else decode_dense(reinterpret_cast<const f16*>(row), w.k, to);
  } else if (w.form == WeightForm::fp8) {
    const e4m3* row = reinterpret_cast<const e4m3*>(w.data) + n * w.k;
    for (int64_t s = 0, k = 0; k < w.k; ++s, k += w.block_k)
      decode_scaled(row + k, w.block_k < w.k - k ? w.block_k : w.k - k, scale_at(w, first_scale + s), to + k);
  } else {
    const uint8_t* row = reinterpret_cast<const uint8_t*>(w.data) + n * w.k / 2;
    for (int64_t s = 0, k = 0; k < w.k; ++s, k += w.block_k) {
      const float scale = scale_at(w, first_scale + s);
      const int zero = w.zero ? w.zero[first_scale + s] : 8;
      for (int64_t i = k; i < k + w.block_k; ++i)
        to[i] = static_cast<float>((i % 2 ? row[i / 2] >> 4 : row[i / 2] & 15) - zero) * scale;
    }
  }
  for (int64_t i = w.k; i < padded; ++i) to[i] = 0.0f;
}

#if defined(__AVX512F__)

// ---- to bf16, exact, the scale kept aside ----

// 64 codes in bytes -> the bytes of their bf16 values, looked up separately and interleaved in order.
EDGEWISE_INLINE void interleave_bf16(__m512i low, __m512i high, bf16* to) {
  _mm512_storeu_si512(to, _mm512_unpacklo_epi8(low, high));
  _mm512_storeu_si512(to + 32, _mm512_unpackhi_epi8(low, high));
}

// unpacklo and unpackhi work within 128-bit lanes: with the 8-byte words in this order, the first yields elements 0..31
// and the second 32..63.
EDGEWISE_INLINE __m512i for_interleave(__m512i bytes) {
  return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), bytes);
}

struct ByteTable {
  alignas(64) uint8_t low[128], high[128];
};

// bf16 of the 128 e4m3 codes without sign.
constexpr ByteTable e4m3_table() {
  ByteTable t{};
  for (int code = 0; code < 128; ++code) {
    int value = (code << 4) + (120 << 7);
    if (code == 0x7f) value = 0x7fc0;
    if (code < 8) {  // subnormal: code * 2^-9, brought to the form 1.m * 2^e
      int mantissa = code, exponent = 121;
      while (mantissa != 0 && mantissa < 8) mantissa <<= 1, --exponent;
      value = code == 0 ? 0 : (exponent << 7) + ((mantissa & 7) << 4);
    }
    t.low[code] = static_cast<uint8_t>(value & 255);
    t.high[code] = static_cast<uint8_t>(value >> 8);
  }
  return t;
}

// bf16 of code - zero, -15..15 (in six bits, two's complement).
constexpr ByteTable int4_table() {
  ByteTable t{};
  for (int i = -31; i < 32; ++i) {
    int magnitude = i < 0 ? -i : i, exponent = 127 + 7;
    while (magnitude != 0 && magnitude < 128) magnitude <<= 1, --exponent;
    const int value = i == 0 ? 0 : (i < 0 ? 0x8000 : 0) + (exponent << 7) + (magnitude & 127);
    t.low[i & 63] = static_cast<uint8_t>(value & 255);
    t.high[i & 63] = static_cast<uint8_t>(value >> 8);
  }
  return t;
}

static inline void decode_fp8(const uint8_t* row, int64_t k, bf16* to) {
  static constexpr ByteTable table = e4m3_table();
  const __m512i low0 = _mm512_load_si512(table.low), low1 = _mm512_load_si512(table.low + 64);
  const __m512i high0 = _mm512_load_si512(table.high), high1 = _mm512_load_si512(table.high + 64);
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
  const auto decode = [&](__m512i loaded, bf16* at) __attribute__((always_inline)) {
    const __m512i codes = for_interleave(loaded);
    const __m512i low = _mm512_permutex2var_epi8(low0, codes, low1);
    const __m512i high = _mm512_permutex2var_epi8(high0, codes, high1);
    interleave_bf16(low, _mm512_ternarylogic_epi32(high, codes, sign, 0xf8), at);  // high | (codes & sign)
  };
  int64_t i = 0;
  for (; i + 64 <= k; i += 64) decode(_mm512_loadu_si512(row + i), to + i);
  if (i < k) decode(_mm512_maskz_loadu_epi8((1ull << (k - i)) - 1, row + i), to + i);
}

// Two zero points per 64 codes: the group is a multiple of 32.
static inline void decode_int4(const uint8_t* row, const uint8_t* zeros, int64_t group, int64_t k, bf16* to) {
  static constexpr ByteTable table = int4_table();
  const __m512i low_table = _mm512_load_si512(table.low), high_table = _mm512_load_si512(table.high);
  const __m512i nibble = _mm512_set1_epi8(15);
  __m512i zero = _mm512_set1_epi8(8);
  for (int64_t i = 0; i < k; i += 64) {
    const __mmask32 mask = k - i >= 64 ? ~0u : (1u << ((k - i) / 2)) - 1;
    const __m512i words = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, row + i / 2));
    const __m512i codes = _mm512_and_si512(_mm512_or_si512(words, _mm512_slli_epi16(words, 4)), nibble);
    if (zeros) {
      const int64_t second = i + 32 < k ? (i + 32) / group : i / group;
      zero = _mm512_inserti64x4(_mm512_set1_epi8(static_cast<char>(zeros[i / group])),
                                _mm256_set1_epi8(static_cast<char>(zeros[second])), 1);
    }
    const __m512i value = for_interleave(_mm512_sub_epi8(codes, zero));
    interleave_bf16(_mm512_permutexvar_epi8(value, low_table), _mm512_permutexvar_epi8(value, high_table), to + i);
  }
}

// Row n of w into `to`, zeros up to `padded`; buffers are whole multiples of 64 elements.
static inline void decode_row(const WeightView& w, int64_t n, int64_t padded, bf16* to) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(w.data);
  if (w.form == WeightForm::dense) {
    const auto* row = reinterpret_cast<const bf16*>(w.data) + n * w.k;
    for (int64_t i = 0; i < w.k; ++i) to[i] = row[i];
  } else if (w.form == WeightForm::fp8) {
    decode_fp8(bytes + n * w.k, w.k, to);
  } else {
    decode_int4(bytes + n * w.k / 2, w.zero ? w.zero + n * w.segments : nullptr, w.block_k, w.k, to);
  }
  for (int64_t i = w.k; i < padded; ++i) to[i].bits = 0;
}

// Whether bf16 rows can be multiplied as bf16: weights exact in bf16, apart from a factor per multiple of 32 elements.
static inline bool exact_in_bf16(const WeightView& w) {
  if (w.form == WeightForm::dense) return w.dtype == DType::bf16;
  return w.block_k % 32 == 0 || w.block_k >= w.k;
}

#endif

}  // namespace edgewise::EDGEWISE_ISA
