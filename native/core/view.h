// Shapes and views. All functions throw std::runtime_error saying what is wrong.
#pragma once

#include <string>

#include "core/tensor.h"

namespace edgewise {

struct Shape {
  int rank = 0;
  int64_t dims[kMaxRank] = {};
};

std::string describe(const Shape& shape);

// Bytes of a contiguous tensor; throws when they do not fit 2^53.
size_t checked_bytes(DType dtype, const Shape& shape);

// A contiguous tensor over `storage` from `offset` on; throws when it does not fit.
Tensor make_tensor(std::shared_ptr<Storage> storage, size_t offset, DType dtype, const Shape& shape);

// As the Tensor methods of gpu-node/native/addon.ts.
Tensor reshape(const Tensor& t, const Shape& shape);
Tensor slice(const Tensor& t, int dim, int64_t begin, int64_t end);
Tensor split_last(const Tensor& t, const Shape& shape);

// Copies the elements out, in row-major order.
void copy_out(const Tensor& t, void* target);

}  // namespace edgewise
