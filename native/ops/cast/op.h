// Elementwise conversion between floating-point dtypes, rounding to nearest even. To e4m3 it saturates at +-448.
//   x    f32|bf16|f16|e4m3, any shape
//   out  f32|bf16|f16|e4m3, the same shape
#pragma once

#include "core/op.h"

namespace edgewise {

struct Cast {
  Tensor x, out;
};

inline Cast parse_cast(const Args& args) {
  const std::initializer_list<DType> dtypes = {DType::f32, DType::bf16, DType::f16, DType::e4m3};
  Cast p;
  p.x = args.shaped("x", dtypes, args.peek("x"));
  p.out = args.shaped("out", dtypes, p.x);
  return p;
}

}  // namespace edgewise
