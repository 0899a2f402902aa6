// Rows of tensors of any rank: what elementwise and row-wise kernels loop over.
#pragma once

#include <algorithm>

#include "core/tensor.h"

namespace edgewise {

// All dimensions but the last, multiplied.
inline int64_t row_count(const Tensor& t) {
  int64_t n = 1;
  for (int i = 0; i + 1 < t.rank; ++i) n *= t.shape[i];
  return n;
}

inline int64_t row_width(const Tensor& t) { return t.rank == 0 ? 1 : t.shape[t.rank - 1]; }

// Elements from the tensor's first one to that of row `r`, counted over the outer dimensions in row-major order.
inline int64_t row_offset(const Tensor& t, int64_t r) {
  int64_t offset = 0;
  for (int i = t.rank - 2; i > 0; --i) {
    offset += r % t.shape[i] * t.stride[i];
    r /= t.shape[i];
  }
  return t.rank >= 2 ? offset + r * t.stride[0] : offset;
}

template <class T>
T* row(const Tensor& t, int64_t r) {
  return t.data<T>() + row_offset(t, r);
}

// Rows per piece of parallel_for, for kernels that spend about a nanosecond on an element: some 10 us a piece.
inline int64_t row_grain(int64_t elements_per_row) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(elements_per_row, 1));
}

}  // namespace edgewise
