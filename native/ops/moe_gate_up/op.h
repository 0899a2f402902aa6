// moe_gate_up: out [T, k, I] = silu(x . gate_e) * (x . up_e) for the experts e = ids [T, k] of every token.
//   x f32|bf16 [T, K]; ids i32 [T, k], -1 = none (zeros); gate, up bf16|f16|f32 [E, I, K]; out of x's dtype.
//   An id out of range fails the kernel.
#pragma once

#include "ops/linear_common/parse.h"

namespace edgewise {

struct MoeGateUp : GateUpCall {};

inline MoeGateUp parse_moe_gate_up(const Args& args) {
  return {parse_gate_up_call(args, parse_dense(args, "gate", 3), parse_dense(args, "up", 3))};
}

}  // namespace edgewise
