// linear_fp8: linear with e4m3 weights and a scale per block (DeepSeek-V3 `weight_scale_inv`).
//   w e4m3 [N, K]; scale f32 [ceil(N / block_n), ceil(K / block_k)]; the weight is code * scale. Activations stay as
//   they are. The rest as linear.
#pragma once

#include "ops/linear_common/parse.h"

namespace edgewise {

struct LinearFp8 : LinearCall {};

inline LinearFp8 parse_linear_fp8(const Args& args) {
  return {parse_linear_call(args, parse_fp8(args, "w", "scale", 2))};
}

}  // namespace edgewise
