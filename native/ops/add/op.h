// a += b, elementwise; the residual stream.
//   a  f32|bf16 [T, H]   added to in place
//   b  f32|bf16 [T, H]   the sum is formed in f32 and rounded to a's dtype
#pragma once

#include "core/op.h"

namespace edgewise {

struct Add {
  Tensor a, b;
  int64_t rows, columns;
};

inline Add parse_add(const Args& args) {
  Add p;
  p.a = args.tensor("a", {DType::f32, DType::bf16}, {-1, -1});
  p.rows = p.a.shape[0];
  p.columns = p.a.shape[1];
  p.b = args.tensor("b", {DType::f32, DType::bf16}, {p.rows, p.columns});
  args.may_alias("a", "b");
  return p;
}

}  // namespace edgewise
