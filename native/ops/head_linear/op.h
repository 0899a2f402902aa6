// head_linear: out [T, h, N] = x [T, h, K] . w [h, N, K]^T, one matrix per head (the absorbed projections of MLA).
//   x f32|bf16 and out f32|bf16 may be strided views; w bf16|f16|f32. f32 accumulation; T may be 0.
#pragma once

#include "ops/linear_common/parse.h"
