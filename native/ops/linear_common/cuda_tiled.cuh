// Products for every shape, stride, alignment and dtype: f32 arithmetic, one tile of out per block. What cuda_stream.cuh
// can't take comes here, and all f32 activations do.
//   A block computes kRows rows of x times kColumns rows of w; k ascends in one sum per element.
#pragma once

#include "ops/linear_common/cuda_operands.cuh"

namespace edgewise::cuda::tiled {

constexpr int kRows = 32, kColumns = 64, kDepth = 32, kThreads = 256;
constexpr int kPerRow = kColumns / 4;  // threads along a row of the tile; each has 2 x 4 elements

__device__ inline float value_at(const Matrix& w, int expert, int n, int k) {
  const char* data = w.data + expert * w.data_bytes;
  const int64_t at = static_cast<int64_t>(n) * w.k + k;
  if (w.form == WeightForm::dense) return element(w.dtype, data, at);
  const int64_t s = expert * w.scales + static_cast<int64_t>(n / w.block_n) * w.segments + k / w.block_k;
  const float scale = element(w.scale_dtype, w.scale, s);
  if (w.form == WeightForm::fp8) return element(DType::e4m3, data, at) * scale;
  const int byte = static_cast<unsigned char>(data[at / 2]);
  return static_cast<float>((k % 2 ? byte >> 4 : byte & 15) - (w.zero ? w.zero[s] : 8)) * scale;
}

// kMatrices 1: out = x . w + bias. kMatrices 2: out = silu(x . w) * (x . w2).
struct Product {
  Matrix w[2];
  Rows rows;
  Groups groups;
  const void* bias;  // or null
  DType bias_dtype;
};

template <int kMatrices, class X, class Out>
__global__ void __launch_bounds__(kThreads) product_kernel(const Product p) {
  __shared__ float xs[kDepth][kRows + 1];
  __shared__ float ws[kMatrices][kDepth][kColumns + 1];
  wait_for_previous_kernel();
  Tile tile;
  if (!find_tile<kRows>(p.groups, blockIdx.y, &tile)) return;
  const Matrix& w = p.w[0];
  const int n0 = blockIdx.x * kColumns, r0 = threadIdx.x / kPerRow * 2, c0 = threadIdx.x % kPerRow * 4;
  const X* x = static_cast<const X*>(p.rows.x);
  float sum[kMatrices][2][4] = {};
  for (int k0 = 0; tile.expert >= 0 && k0 < w.k; k0 += kDepth) {
    __syncthreads();
    for (int i = threadIdx.x; i < kRows * kDepth; i += kThreads) {
      const int r = i / kDepth, k = k0 + i % kDepth;
      xs[i % kDepth][r] = r < tile.count && k < w.k ? to_float(x[p.rows.x_at(tile.p(r)) + k]) : 0.0f;
    }
    for (int i = threadIdx.x; i < kColumns * kDepth; i += kThreads) {
      const int n = n0 + i / kDepth, k = k0 + i % kDepth;
      for (int m = 0; m < kMatrices; ++m)
        ws[m][i % kDepth][i / kDepth] = n < w.n && k < w.k ? value_at(p.w[m], tile.expert, n, k) : 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < kDepth; ++k)
      for (int m = 0; m < kMatrices; ++m)
        for (int r = 0; r < 2; ++r)
          for (int c = 0; c < 4; ++c) sum[m][r][c] = fmaf(xs[k][r0 + r], ws[m][k][c0 + c], sum[m][r][c]);
  }
  let_next_kernel_start();
  Out* out = static_cast<Out*>(p.rows.out);
  for (int r = 0; r < 2 && r0 + r < tile.count; ++r)
    for (int c = 0; c < 4 && n0 + c0 + c < w.n; ++c) {
      float value = sum[0][r][c];
      if (kMatrices == 2) value = silu(value) * sum[kMatrices - 1][r][c];
      else if (p.bias) value += element(p.bias_dtype, p.bias, n0 + c0 + c);
      out[p.rows.out_at(tile.p(r0 + r)) + n0 + c0 + c] = from_float<Out>(value);
    }
}

// `tiles`: of kRows rows, or the entries that the list may hold.
template <int kMatrices, class X, class Out>
void product(Context& context, const Product& p, int tiles) {
  const Grid grid{.blocks = dim3(ceil_div(p.w[0].n, kColumns), tiles, p.groups.entries ? 1 : p.groups.groups),
                  .threads = kThreads,
                  .dependent = true};
  launch(context, product_kernel<kMatrices, X, Out>, grid, p);
}

}  // namespace edgewise::cuda::tiled
