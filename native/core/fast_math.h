// exp, sin and cos that compilers vectorize: no branches, no calls, the same bits at every instruction set.
#pragma once

#include <bit>
#include <cstdint>

namespace edgewise {

// e^x within 2 units in the last place of f32; infinity above 88.73, 0 below -104, NaN stays NaN.
//   x = n ln 2 + r, |r| <= ln 2 / 2; e^x = 2^n e^r. ln 2 is split so that n * ln2_high is exact (Cody and Waite).
inline float fast_exp(float x) {
  constexpr float log2_e = 0x1.715476p+0f, ln2_high = 0x1.62e4p-1f, ln2_low = 0x1.7f7d1cp-20f;
  constexpr float round = 0x1.8p+23f;  // adding it leaves the nearest integer in the low mantissa bits
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float shifted = x * log2_e + round;
  const float n = shifted - round;
  const float r = (x - n * ln2_high) - n * ln2_low;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = (p * r) * r + r + 1.0f;
  // 2^n in two factors: n lies within [-150, 128].
  const uint32_t bits = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(round);
  const int32_t exponent = static_cast<int32_t>(bits);
  const int32_t half = exponent >> 1;
  const float scale_a = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
  const float scale_b = std::bit_cast<float>(static_cast<uint32_t>(exponent - half + 127) << 23);
  return p * scale_a * scale_b;
}

// sin and cos of an f32 angle, |angle| <= 2^21, correct to about 1e-13 before the rounding to f32.
//   angle = k pi/2 + r, |r| <= pi/4, in double: k has 21 bits, so k * pi/2 is off by less than 1e-10. Taylor series of r.
inline void fast_sincos(float angle, float& sin_out, float& cos_out) {
  constexpr double two_over_pi = 0x1.45f306dc9c883p-1, half_pi = 0x1.921fb54442d18p+0;
  constexpr double half_pi_low = 0x1.1a62633145c07p-54;
  constexpr double round = 0x1.8p+52;
  const double a = static_cast<double>(angle);
  const double shifted = a * two_over_pi + round;
  const double k = shifted - round;
  const double r = (a - k * half_pi) - k * half_pi_low;
  const double r2 = r * r;
  double s = 1.0 / 6227020800.0;
  s = s * r2 - 1.0 / 39916800.0;
  s = s * r2 + 1.0 / 362880.0;
  s = s * r2 - 1.0 / 5040.0;
  s = s * r2 + 1.0 / 120.0;
  s = s * r2 - 1.0 / 6.0;
  s = s * r2 * r + r;
  double c = -1.0 / 87178291200.0;
  c = c * r2 + 1.0 / 479001600.0;
  c = c * r2 - 1.0 / 3628800.0;
  c = c * r2 + 1.0 / 40320.0;
  c = c * r2 - 1.0 / 720.0;
  c = c * r2 + 1.0 / 24.0;
  c = c * r2 - 0.5;
  c = c * r2 + 1.0;
  const uint64_t quadrant = std::bit_cast<uint64_t>(shifted);
  const double sine = quadrant & 1 ? c : s;
  const double cosine = quadrant & 1 ? s : c;
  sin_out = static_cast<float>(quadrant & 2 ? -sine : sine);
  cos_out = static_cast<float>((quadrant + 1) & 2 ? -cosine : cosine);
}

}  // namespace edgewise
