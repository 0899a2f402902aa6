// linear: out [M, N] = x [M, K] . w [N, K]^T + bias [N].
//   x f32|bf16, rows may be strided; w bf16|f16|f32 [N, K]; bias bf16|f16|f32 [N] or null; out f32|bf16, rows may be
//   strided. f32 accumulation; a row's bits do not depend on the other rows. M may be 0.
//   CUDA: bf16 products of more than 64 rows go through cuBLASLt where it is found (cuda/cublaslt.h), and then their bits may
//   depend on M; not with EDGEWISE_CUDA_GEMM=own.
#pragma once

#include "ops/linear_common/parse.h"

namespace edgewise {

struct Linear : LinearCall {};

inline Linear parse_linear(const Args& args) {
  return {parse_linear_call(args, parse_dense(args, "w", 2))};
}

}  // namespace edgewise
