// A small SIMD layer, one per instruction set: files compiled with EDGEWISE_ISA = portable, avx2 or avx512 see vectors
// of 4, 8 or 16 floats under the same names. Everything lies in edgewise::EDGEWISE_ISA and is always inlined, so that no
// function compiled for a newer machine can be linked into code for an older one (do not call plain `inline` helpers of
// other headers from a cpu.cc for the same reason).
//
//   F32 v = load(p);             p: const float*, const bf16*, const f16* or const e4m3*; exact conversions
//   F32 v = load_partial(p, n);  the first n < kLanes elements, zeros after them; reads nothing beyond
//   store(p, v)                  p: float* or bf16* (to nearest, ties to even); store_partial(p, v, n)
#pragma once

#include <cstdint>

#include "core/float.h"

#if defined(__AVX512F__) || defined(__AVX2__)
// GCC 12 takes the deliberately undefined operands of its own intrinsics for uninitialised reads.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

#ifndef EDGEWISE_ISA
#error "EDGEWISE_ISA must be portable, avx2 or avx512"
#endif

#define EDGEWISE_INLINE inline __attribute__((always_inline))

namespace edgewise::EDGEWISE_ISA {

// Single elements. An f16 or e4m3 without its sign, moved to the place of an f32, is too small by the difference of the
// exponent biases, subnormals included.
EDGEWISE_INLINE float widen(float v) { return v; }
EDGEWISE_INLINE float widen(bf16 v) { return __builtin_bit_cast(float, static_cast<uint32_t>(v.bits) << 16); }
EDGEWISE_INLINE float widen(f16 v) {
  const uint32_t sign = static_cast<uint32_t>(v.bits & 0x8000u) << 16, rest = v.bits & 0x7fffu;
  if (rest >= 0x7c00u) return __builtin_bit_cast(float, sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  const float magnitude = __builtin_bit_cast(float, rest << 13) * 0x1p112f;
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, magnitude));
}
EDGEWISE_INLINE float widen(e4m3 v) {
  const uint32_t sign = static_cast<uint32_t>(v.bits & 0x80u) << 24, rest = v.bits & 0x7fu;
  const float magnitude = rest == 0x7fu ? __builtin_nanf("") : __builtin_bit_cast(float, rest << 20) * 0x1p120f;
  return __builtin_bit_cast(float, sign | __builtin_bit_cast(uint32_t, magnitude));
}
EDGEWISE_INLINE void narrow(float* p, float v) { *p = v; }
EDGEWISE_INLINE void narrow(bf16* p, float v) {
  const uint32_t u = __builtin_bit_cast(uint32_t, v);
  const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  p->bits = static_cast<uint16_t>(nan ? (u >> 16) | 0x40u : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

}  // namespace edgewise::EDGEWISE_ISA

#if defined(__AVX512F__)
#include "core/simd_avx512.h"
#elif defined(__AVX2__)
#include "core/simd_avx2.h"
#else
#include "core/simd_portable.h"
#endif

namespace edgewise::EDGEWISE_ISA {

// exp with a relative error below 2^-22 over the whole range: exp(x) = 2^n * exp(r), r = x - n ln 2, |r| <= ln 2 / 2,
// polynomial of Cephes expf (S. L. Moshier). Overflows to infinity, underflows through the subnormals to 0, keeps NaN.
EDGEWISE_INLINE F32 exp(F32 x) {
  const F32 n = round(clamp(x, -104.0f, 89.0f) * splat(1.44269504088896341f));
  F32 r = fma(n, splat(-0.693359375f), clamp(x, -104.0f, 89.0f));
  r = fma(n, splat(2.12194440e-4f), r);
  F32 p = fma(splat(1.9875691500e-4f), r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  p = fma(p, r * r, r) + splat(1.0f);
  return scale_by_power_of_two(p, n);
}

// x * sigmoid(x).
EDGEWISE_INLINE F32 silu(F32 x) { return x / (splat(1.0f) + exp(splat(0.0f) - x)); }

}  // namespace edgewise::EDGEWISE_ISA
