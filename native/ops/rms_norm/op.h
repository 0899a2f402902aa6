// out = x / sqrt(mean(x^2) + eps) * weight, over the last dimension; sums and products in f32, rounded once.
// Zhang and Sennrich, "Root Mean Square Layer Normalization", https://arxiv.org/abs/1910.07467.
//   x       f32|bf16 [T, D] or [T, heads, D]
//   weight  f32|bf16|f16 [D]
//   out     f32|bf16, the shape of x; may be x
//   eps     >= 0
#pragma once

#include "core/op.h"

namespace edgewise {

struct RmsNorm {
  Tensor x, weight, out;
  float eps;
};

inline RmsNorm parse_rms_norm(const Args& args) {
  RmsNorm p;
  const Tensor& x = args.peek("x");
  if (x.rank < 2) throw OpError("x", "must have at least 2 dimensions, is " + x.describe());
  p.x = args.shaped("x", {DType::f32, DType::bf16}, x);
  p.weight = args.tensor("weight", {DType::f32, DType::bf16, DType::f16}, {x.shape[x.rank - 1]});
  p.out = args.shaped("out", {DType::f32, DType::bf16}, p.x);
  p.eps = static_cast<float>(args.number("eps"));
  if (p.eps < 0) throw OpError("eps", "must not be negative");
  args.may_alias("out", "x");
  return p;
}

}  // namespace edgewise
