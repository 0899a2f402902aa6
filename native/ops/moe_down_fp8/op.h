// moe_down_fp8: moe_down with e4m3 weights [E, N, K] and scales f32 [E, ceil(N / block_n), ceil(K / block_k)].
#pragma once

#include "ops/linear_common/parse.h"

namespace edgewise {

struct MoeDownFp8 : DownCall {};

inline MoeDownFp8 parse_moe_down_fp8(const Args& args) {
  return {parse_down_call(args, parse_fp8(args, "down", "down_scale", 3))};
}

}  // namespace edgewise
