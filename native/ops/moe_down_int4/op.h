// moe_down_int4: moe_down with 4-bit weights u8 [E, N, K/2], scales bf16|f16|f32 [E, N, K / group] and zero points u8
// of the same shape or null for 8.
#pragma once

#include "ops/linear_common/parse.h"

namespace edgewise {

struct MoeDownInt4 : DownCall {};

inline MoeDownInt4 parse_moe_down_int4(const Args& args) {
  return {parse_down_call(args, parse_int4(args, "down", "down_scale", "down_zero", 3))};
}

}  // namespace edgewise
