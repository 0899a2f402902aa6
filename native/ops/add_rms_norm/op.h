// residual += x; out = rms_norm(residual) * weight: the end of one block and the norm of the next.
//   residual  f32 [T, H]
//   x         f32|bf16 [T, H]
//   weight    f32|bf16|f16 [H]
//   out       f32|bf16 [T, H]; may be x
//   eps       >= 0
#pragma once

#include "core/op.h"

namespace edgewise {

struct AddRmsNorm {
  Tensor residual, x, weight, out;
  float eps;
};

inline AddRmsNorm parse_add_rms_norm(const Args& args) {
  AddRmsNorm p;
  p.residual = args.tensor("residual", {DType::f32}, {-1, -1});
  p.x = args.shaped("x", {DType::f32, DType::bf16}, p.residual);
  p.weight = args.tensor("weight", {DType::f32, DType::bf16, DType::f16}, {p.residual.shape[1]});
  p.out = args.shaped("out", {DType::f32, DType::bf16}, p.residual);
  p.eps = static_cast<float>(args.number("eps"));
  if (p.eps < 0) throw OpError("eps", "must not be negative");
  args.may_alias("out", "x");
  return p;
}

}  // namespace edgewise
