// moe_gate_up_fp8: moe_gate_up with e4m3 weights [E, I, K] and scales f32 [E, ceil(I / block_n), ceil(K / block_k)].
#pragma once

#include "ops/linear_common/parse.h"

namespace edgewise {

struct MoeGateUpFp8 : GateUpCall {};

inline MoeGateUpFp8 parse_moe_gate_up_fp8(const Args& args) {
  return {parse_gate_up_call(args, parse_fp8(args, "gate", "gate_scale", 3),
                                       parse_fp8(args, "up", "up_scale", 3))};
}

}  // namespace edgewise
