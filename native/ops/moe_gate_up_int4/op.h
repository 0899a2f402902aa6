// moe_gate_up_int4: moe_gate_up with 4-bit weights u8 [E, I, K/2], scales bf16|f16|f32 [E, I, K / group] and zero
// points u8 of the same shape or null for 8.
#pragma once

#include "ops/linear_common/parse.h"

namespace edgewise {

struct MoeGateUpInt4 : GateUpCall {};

inline MoeGateUpInt4 parse_moe_gate_up_int4(const Args& args) {
  return {parse_gate_up_call(args, parse_int4(args, "gate", "gate_scale", "gate_zero", 3),
                                        parse_int4(args, "up", "up_scale", "up_zero", 3))};
}

}  // namespace edgewise
