// Row pieces of the norms, for inclusion by cpu.cc files.
#pragma once

#include <cmath>

#include "core/float.h"
#include "core/rows.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

// Sum of squares in 16 partial sums, whatever the instruction set: the same bits everywhere.
template <class In>
float sum_of_squares(const In* x, int64_t width) {
  constexpr int kLanes = 16;
  float partial[kLanes] = {};
  int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes)
    for (int j = 0; j < kLanes; ++j) {
      const float v = to_f32(x[c + j]);
      partial[j] += v * v;
    }
  for (int j = 0; c + j < width; ++j) {
    const float v = to_f32(x[c + j]);
    partial[j] += v * v;
  }
  for (int step = kLanes / 2; step > 0; step /= 2)
    for (int j = 0; j < step; ++j) partial[j] += partial[j + step];
  return partial[0];
}

template <class In, class Out, class Weight>
void normalise_row(const In* x, const Weight* weight, Out* out, int64_t width, float eps) {
  const float scale = 1.0f / std::sqrt(sum_of_squares(x, width) / static_cast<float>(width) + eps);
#pragma GCC ivdep
  for (int64_t c = 0; c < width; ++c) out[c] = from_f32<Out>(to_f32(x[c]) * scale * to_f32(weight[c]));
}

// Calls fn with a value of the storage type of `dtype`: f32, bf16 or f16.
template <class Fn>
void with_type(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::f32: return fn(float{});
    case DType::bf16: return fn(bf16{});
    default: return fn(f16{});
  }
}

// As with_type, for f32 and bf16.
template <class Fn>
void with_activation(DType dtype, const Fn& fn) {
  dtype == DType::f32 ? fn(float{}) : fn(bf16{});
}

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
