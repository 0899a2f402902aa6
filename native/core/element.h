// Single elements by index, whatever the dtype and strides. For reference kernels: clear, not fast.
#pragma once

#include <initializer_list>

#include "core/float.h"
#include "core/rows.h"
#include "core/tensor.h"

namespace edgewise {

inline int64_t element_offset(const Tensor& t, std::initializer_list<int64_t> index) {
  int64_t offset = 0;
  int dim = 0;
  for (int64_t i : index) offset += i * t.stride[dim++];
  return offset;
}

inline float get_at(const Tensor& t, int64_t i) {
  switch (t.dtype) {
    case DType::f32: return t.data<float>()[i];
    case DType::bf16: return bf16_to_f32(t.data<uint16_t>()[i]);
    case DType::f16: return f16_to_f32(t.data<uint16_t>()[i]);
    case DType::e4m3: return e4m3_to_f32(t.data<uint8_t>()[i]);
    default: throw std::logic_error("not a floating-point tensor: " + t.describe());
  }
}

inline void set_at(const Tensor& t, int64_t i, float value) {
  switch (t.dtype) {
    case DType::f32: t.data<float>()[i] = value; return;
    case DType::bf16: t.data<uint16_t>()[i] = f32_to_bf16(value); return;
    case DType::f16: t.data<uint16_t>()[i] = f32_to_f16(value); return;
    case DType::e4m3: t.data<uint8_t>()[i] = f32_to_e4m3(value); return;
    default: throw std::logic_error("not a floating-point tensor: " + t.describe());
  }
}

// An element of a floating-point tensor.
inline float get(const Tensor& t, std::initializer_list<int64_t> index) { return get_at(t, element_offset(t, index)); }

// Rounds to the tensor's dtype.
inline void set(const Tensor& t, std::initializer_list<int64_t> index, float value) {
  set_at(t, element_offset(t, index), value);
}

// Element `column` of row `r`, the rows counted over all outer dimensions: for ops that take any rank.
inline float get_in_row(const Tensor& t, int64_t r, int64_t column) { return get_at(t, row_offset(t, r) + column); }
inline void set_in_row(const Tensor& t, int64_t r, int64_t column, float value) {
  set_at(t, row_offset(t, r) + column, value);
}

inline int32_t get_int(const Tensor& t, std::initializer_list<int64_t> index) {
  return t.data<int32_t>()[element_offset(t, index)];
}

inline void set_int(const Tensor& t, std::initializer_list<int64_t> index, int32_t value) {
  t.data<int32_t>()[element_offset(t, index)] = value;
}

}  // namespace edgewise
