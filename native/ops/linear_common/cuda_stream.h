// The streaming kernels as the ops see them (cuda_stream.cuh).
#pragma once

#include "ops/linear_common/cuda_operands.cuh"

namespace edgewise::cuda::stream {

// bf16 activations and bf16, fp8 or int4 weights, K a multiple of 32, scales of 32 * 2^i elements (or one a row), and what
// the 16-byte copies and loads need of addresses and strides.
bool takes(const Matrix& w, DType x, const Rows& rows);

// out = x . w (+ bias) for groups that are known; bias may be null.
void linear(Context& context, const Matrix& w, const Rows& rows, const Groups& groups, const Tensor& bias, DType out);

// Rows of x per entry of the routing list that suit this many pairs and matrices (gate and up: 2).
int entry_rows(int64_t pairs, int experts, int matrices);

// For a routing list made with entry_rows(): out = x . w as f32, or (w2 given) silu(x . w) * (x . w2) as bf16.
void experts(Context& context, const Matrix& w, const Matrix* w2, const Rows& rows, const Groups& groups, int capacity,
             int entry_rows);

}  // namespace edgewise::cuda::stream
