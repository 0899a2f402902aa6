// Conversions between f32 and the narrow formats. Every rounding is to nearest, ties to even.
// bf16: 8 exponent bits, 7 mantissa bits. f16: IEEE 754 binary16. e4m3: the "fn" variant of the OCP 8-bit formats
// (https://arxiv.org/abs/2209.05433): bias 7, no infinities, 0x7f and 0xff are NaN, largest finite value 448.
#pragma once

#include <bit>
#include <cstdint>

namespace edgewise {

inline float bf16_to_f32(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

inline uint16_t f32_to_bf16(float value) {
  uint32_t u = std::bit_cast<uint32_t>(value);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);  // NaN stays NaN
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t rest = h & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  if (rest < 0x0400u) {  // zero or subnormal: a multiple of 2^-24
    const float magnitude = static_cast<float>(rest) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((rest << 13) + (112u << 23)));
}

inline uint16_t f32_to_f16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000u);
  uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7e00u | static_cast<uint16_t>((a >> 13) & 0x3ffu);
  if (a >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and more round to infinity
  if (a < 0x38800000u) {                        // below 2^-14: adding 0.5 rounds to a multiple of 2^-24
    const float shifted = std::bit_cast<float>(a) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000u);
  }
  a += 0xfffu + ((a >> 13) & 1u);
  return sign | static_cast<uint16_t>((a - (112u << 23)) >> 13);
}

inline float e4m3_to_f32(uint8_t b) {
  const uint32_t sign = static_cast<uint32_t>(b & 0x80u) << 24;
  const uint32_t rest = b & 0x7fu;
  if (rest == 0x7fu) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (rest < 8u) {  // zero or subnormal: a multiple of 2^-9
    const float magnitude = static_cast<float>(rest) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((rest << 20) + (120u << 23)));
}

// Saturates: everything beyond 448, infinity included, becomes +-448. NaN becomes 0x7f or 0xff.
inline uint8_t f32_to_e4m3(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint8_t sign = static_cast<uint8_t>((u >> 24) & 0x80u);
  uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return sign | 0x7fu;
  if (a >= 0x43e00000u) return sign | 0x7eu;
  if (a < 0x3c800000u) {  // below 2^-6: adding 2^14 rounds to a multiple of 2^-9
    const float shifted = std::bit_cast<float>(a) + 16384.0f;
    return sign | static_cast<uint8_t>(std::bit_cast<uint32_t>(shifted) - 0x46800000u);
  }
  a += 0x7ffffu + ((a >> 20) & 1u);
  return sign | static_cast<uint8_t>((a >> 20) - (120u << 3));
}

// Storage types, for kernels written once for several dtypes: to_f32(v) and from_f32<T>(f).
struct bf16 { uint16_t bits; };
struct f16 { uint16_t bits; };
struct e4m3 { uint8_t bits; };

inline float to_f32(float v) { return v; }
inline float to_f32(bf16 v) { return bf16_to_f32(v.bits); }
inline float to_f32(f16 v) { return f16_to_f32(v.bits); }
inline float to_f32(e4m3 v) { return e4m3_to_f32(v.bits); }

template <class T>
T from_f32(float v);
template <>
inline float from_f32<float>(float v) { return v; }
template <>
inline bf16 from_f32<bf16>(float v) { return {f32_to_bf16(v)}; }
template <>
inline f16 from_f32<f16>(float v) { return {f32_to_f16(v)}; }
template <>
inline e4m3 from_f32<e4m3>(float v) { return {f32_to_e4m3(v)}; }

}  // namespace edgewise
