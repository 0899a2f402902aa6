// core/simd.h for any machine: 4 lanes in the compiler's generic vectors. Included by core/simd.h only.
#pragma once

namespace edgewise::EDGEWISE_ISA {

constexpr int kLanes = 4;
typedef float Floats __attribute__((vector_size(16)));
typedef int32_t Ints __attribute__((vector_size(16)));
struct F32 { Floats v; };

EDGEWISE_INLINE F32 splat(float a) { return {Floats{a, a, a, a}}; }
EDGEWISE_INLINE F32 operator+(F32 a, F32 b) { return {a.v + b.v}; }
EDGEWISE_INLINE F32 operator-(F32 a, F32 b) { return {a.v - b.v}; }
EDGEWISE_INLINE F32 operator*(F32 a, F32 b) { return {a.v * b.v}; }
EDGEWISE_INLINE F32 operator/(F32 a, F32 b) { return {a.v / b.v}; }
EDGEWISE_INLINE F32 fma(F32 a, F32 b, F32 c) { return {a.v * b.v + c.v}; }
EDGEWISE_INLINE F32 max(F32 a, F32 b) { return {a.v > b.v ? a.v : b.v}; }
EDGEWISE_INLINE F32 clamp(F32 x, float low, float high) {  // NaN compares false and stays
  const Floats raised = x.v < splat(low).v ? splat(low).v : x.v;
  return {raised > splat(high).v ? splat(high).v : raised};
}
// Adding 1.5 * 2^23 rounds |a| < 2^22 to an integer.
EDGEWISE_INLINE F32 round(F32 a) {
  const F32 shift = splat(12582912.0f);
  return (a + shift) - shift;
}
// In two halves, so that neither factor leaves the range of f32 where the product is subnormal. n of a NaN is a NaN:
// any factors do, the product stays NaN.
EDGEWISE_INLINE F32 scale_by_power_of_two(F32 a, F32 n) {
  F32 result;
  for (int i = 0; i < kLanes; ++i) {
    const int e = n.v[i] == n.v[i] ? static_cast<int>(n.v[i]) : 0;
    const int half = e >> 1;
    const float f = __builtin_bit_cast(float, (half + 127) << 23);
    const float g = __builtin_bit_cast(float, (e - half + 127) << 23);
    result.v[i] = a.v[i] * f * g;
  }
  return result;
}
EDGEWISE_INLINE float sum(F32 a) { return (a.v[0] + a.v[2]) + (a.v[1] + a.v[3]); }
EDGEWISE_INLINE float largest(F32 a) {
  float m = a.v[0];
  for (int i = 1; i < kLanes; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
}

template <class T>
EDGEWISE_INLINE F32 load_partial(const T* p, int n) {
  F32 a = splat(0.0f);
  for (int i = 0; i < n; ++i) a.v[i] = widen(p[i]);
  return a;
}
template <class T>
EDGEWISE_INLINE F32 load(const T* p) {
  return {Floats{widen(p[0]), widen(p[1]), widen(p[2]), widen(p[3])}};
}

template <class T>
EDGEWISE_INLINE void store_partial(T* p, F32 a, int n) {
  for (int i = 0; i < n; ++i) narrow(p + i, a.v[i]);
}
template <class T>
EDGEWISE_INLINE void store(T* p, F32 a) {
  store_partial(p, a, kLanes);
}

}  // namespace edgewise::EDGEWISE_ISA
