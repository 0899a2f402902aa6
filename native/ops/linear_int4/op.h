// linear_int4: linear with 4-bit weights in groups along K (compressed-tensors `pack-quantized`).
//   w u8 [N, K/2], low nibble = even element; scale bf16|f16|f32 [N, K / group]; zero u8 [N, K / group] or null for 8;
//   the weight is (code - zero) * scale. `group` divides K. The rest as linear.
#pragma once

#include "ops/linear_common/parse.h"

namespace edgewise {

struct LinearInt4 : LinearCall {};

inline LinearInt4 parse_linear_int4(const Args& args) {
  return {parse_linear_call(args, parse_int4(args, "w", "scale", "zero", 2))};
}

}  // namespace edgewise
