// One thread per eight elements of a row, or per element where rows are not aligned. Bound by memory: every element is
// read and written once.
#pragma once

#include "cuda/launch.h"
#include "cuda/rows.cuh"

namespace edgewise::cuda {

constexpr int kElementwiseThreads = 256;

// `op.run<kWidth>(row, column)` does the kWidth elements from `column` on.
template <int kWidth, class Op>
__global__ void __launch_bounds__(kElementwiseThreads) elementwise_kernel(Op op, int64_t rows, uint32_t pieces) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kElementwiseThreads + threadIdx.x;
  if (i >= rows * pieces) return;
  // A 64-bit division takes longer than the rest of the kernel.
  const int64_t row = i >> 32 == 0 ? static_cast<uint32_t>(i) / pieces : i / pieces;
  op.template run<kWidth>(row, (i - row * pieces) * kWidth);
}

template <class Op>
void launch_elementwise(Context& context, const Op& op, int64_t rows, int64_t width, bool vectors) {
  const int64_t pieces = vectors ? width / kVector : width;
  const Grid grid{.blocks = ceil_div(rows * pieces, kElementwiseThreads), .threads = kElementwiseThreads, .dependent = true};
  vectors ? launch(context, elementwise_kernel<kVector, Op>, grid, op, rows, pieces)
          : launch(context, elementwise_kernel<1, Op>, grid, op, rows, pieces);
}

// Calls fn with a value of the storage type of a floating-point `dtype`; with_activation: of f32 or bf16.
template <class Fn>
void with_type(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::f32: return fn(float{});
    case DType::bf16: return fn(bf16{});
    case DType::f16: return fn(f16{});
    default: return fn(e4m3{});
  }
}

template <class Fn>
void with_activation(DType dtype, const Fn& fn) {
  dtype == DType::f32 ? fn(float{}) : fn(bf16{});
}

}  // namespace edgewise::cuda
