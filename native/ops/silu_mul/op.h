// out = silu(gate) * up, with silu(x) = x / (1 + exp(-x)); formed in f32, rounded once.
//   gate, up  f32|bf16, the same dtype and shape
//   out       f32|bf16, the same shape; may be `gate` or `up`
#pragma once

#include "core/op.h"

namespace edgewise {

struct SiluMul {
  Tensor gate, up, out;
};

inline SiluMul parse_silu_mul(const Args& args) {
  SiluMul p;
  p.gate = args.shaped("gate", {DType::f32, DType::bf16}, args.peek("gate"));
  p.up = args.shaped("up", {p.gate.dtype}, p.gate);
  p.out = args.shaped("out", {DType::f32, DType::bf16}, p.gate);
  args.may_alias("out", "gate");
  args.may_alias("out", "up");
  return p;
}

}  // namespace edgewise
