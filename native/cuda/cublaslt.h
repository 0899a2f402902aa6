// Large bf16 products through NVIDIA's cuBLASLt, when the machine has it: found at run time, never linked.
//   EDGEWISE_CUDA_GEMM=own       never: our kernels do all products (a row's bits then don't depend on the batch)
//   EDGEWISE_CUDA_GEMM=cublaslt  it must be there; unset: used when it is
//   EDGEWISE_CUBLASLT=PATH       the library's file, before libcublasLt.so.13, .12 and .so
#pragma once

#include <string>

#include "core/op.h"

namespace edgewise::cuda {

// Why products don't go through cuBLASLt in this process, or an empty string. Never throws.
std::string cublaslt_unavailable();

// out [M, N] = x [M, K] . w [N, K]^T + bias [N]: x, w bf16; out bf16 or f32; bias of out's dtype or null; f32 sums.
struct DenseProduct {
  const void *x, *w, *bias;
  void* out;
  int64_t m, n, k, x_stride, out_stride;  // strides in elements
  bool out32;
};

// Enqueues the product; false: it doesn't take this one. The algorithm is chosen by shape, so a row's bits may depend on M,
// but are the same in every run.
bool cublaslt_product(Context& context, const DenseProduct& p);

}  // namespace edgewise::cuda
