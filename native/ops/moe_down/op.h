// moe_down: out [T, N] = sum over j of weights [T, j] * (x [T, j, :] . down_e) for e = ids [T, j], j ascending.
//   x f32|bf16 [T, k, K]; ids i32 [T, k], -1 = none; weights f32 [T, k]; down bf16|f16|f32 [E, N, K]; out f32|bf16.
//   An id out of range fails the kernel.
#pragma once

#include "ops/linear_common/parse.h"

namespace edgewise {

struct MoeDown : DownCall {};

inline MoeDown parse_moe_down(const Args& args) {
  return {parse_down_call(args, parse_dense(args, "down", 3))};
}

}  // namespace edgewise
