// Root mean square norms. A row belongs to one warp (up to 1,024 elements) or to one block (up to 16,384), which reads it
// once and keeps it in registers; wider and unaligned rows are read twice. Bound by memory: in + out (+ residual twice)
// bytes per element, and at decode sizes by the launch: the weights are read while the previous kernel ends.
// A row's sum is formed in an order that its width alone decides: the same bits in any batch.
#pragma once

#include "cuda/elementwise.cuh"

namespace edgewise::cuda {

constexpr int kNormWarps = 8;           // rows per block of narrow rows
constexpr int kWarpVectors = 4, kBlockVectors = 2;  // vectors per thread

template <class In, class Out>
struct Norm {
  Rows<const In> x;
  Rows<Out> out;
  float* residual;  // [rows, width], or null: x alone is normalised
  int64_t residual_stride;
  const void* weight;
  DType weight_type;
  int64_t rows;
  int width;
  float eps;

  __device__ float weight_at(int i) const {
    switch (weight_type) {
      case DType::f32: return static_cast<const float*>(weight)[i];
      case DType::bf16: return to_float(static_cast<const bf16*>(weight)[i]);
      default: return to_float(static_cast<const f16*>(weight)[i]);
    }
  }
  __device__ void load_weight(int i, float (&v)[kVector]) const {
    switch (weight_type) {
      case DType::f32: return load_vector(static_cast<const float*>(weight) + i, v);
      case DType::bf16: return load_vector(static_cast<const bf16*>(weight) + i, v);
      default: return load_vector(static_cast<const f16*>(weight) + i, v);
    }
  }
  __device__ float scale_of(float sum) const { return 1.0f / sqrtf(sum / static_cast<float>(width) + eps); }
};

// `threads` threads, of which this is number `me`, normalise one row; sum_all adds a value up over all of them.
template <int kVectors, class In, class Out, class SumAll>
__device__ void normalise_in_registers(const Norm<In, Out>& n, int64_t row, int me, int threads, const SumAll& sum_all) {
  float weight[kVectors][kVector], v[kVectors][kVector];
  for (int j = 0; j < kVectors; ++j) {
    const int c = (j * threads + me) * kVector;
    if (c < n.width) n.load_weight(c, weight[j]);
  }
  wait_for_previous_kernel();
  let_next_kernel_start();
  if (row >= n.rows) return;
  const In* x = n.x[row];
  float* residual = n.residual ? n.residual + row * n.residual_stride : nullptr;
  for (int j = 0; j < kVectors; ++j) {
    const int c = (j * threads + me) * kVector;
    if (c < n.width) load_vector(x + c, v[j]);
  }
  float sum = 0;
  for (int j = 0; j < kVectors; ++j) {
    const int c = (j * threads + me) * kVector;
    if (c >= n.width) continue;
    if (residual) {
      float before[kVector];
      load_vector(residual + c, before);
      for (int i = 0; i < kVector; ++i) v[j][i] += before[i];
      store_vector(residual + c, v[j]);
    }
    for (int i = 0; i < kVector; ++i) sum = fmaf(v[j][i], v[j][i], sum);
  }
  const float scale = n.scale_of(sum_all(sum));
  Out* out = n.out[row];
  for (int j = 0; j < kVectors; ++j) {
    const int c = (j * threads + me) * kVector;
    if (c >= n.width) continue;
    for (int i = 0; i < kVector; ++i) v[j][i] = v[j][i] * scale * weight[j][i];
    store_vector(out + c, v[j]);
  }
}

template <int kVectors, class In, class Out>
__global__ void __launch_bounds__(kNormWarps * 32) norm_warp_kernel(Norm<In, Out> n) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kNormWarps + threadIdx.x / 32;
  normalise_in_registers<kVectors>(n, row, threadIdx.x % 32, 32, [](float v) { return warp_sum(v); });
}

template <class In, class Out>
__global__ void __launch_bounds__(1024) norm_block_kernel(Norm<In, Out> n) {
  __shared__ float scratch[32];
  normalise_in_registers<kBlockVectors>(n, blockIdx.x, threadIdx.x, blockDim.x,
                                        [&](float v) { return block_sum(v, scratch); });
}

template <class In, class Out>
__global__ void __launch_bounds__(256) norm_any_kernel(Norm<In, Out> n) {
  __shared__ float scratch[32];
  wait_for_previous_kernel();
  let_next_kernel_start();
  const In* x = n.x[blockIdx.x];
  float* residual = n.residual ? n.residual + blockIdx.x * n.residual_stride : nullptr;
  float sum = 0;
  for (int c = threadIdx.x; c < n.width; c += blockDim.x) {
    float v = to_float(x[c]);
    if (residual) v = residual[c] += v;
    sum = fmaf(v, v, sum);
  }
  const float scale = n.scale_of(block_sum(sum, scratch));
  Out* out = n.out[blockIdx.x];
  for (int c = threadIdx.x; c < n.width; c += blockDim.x) {
    const float v = residual ? residual[c] : to_float(x[c]);
    out[c] = from_float<Out>(v * scale * n.weight_at(c));
  }
}

template <class In, class Out>
void launch_norm(Context& context, const Norm<In, Out>& n, bool vectors) {
  const int pieces = ceil_div(n.width, kVector);
  Grid grid{.blocks = static_cast<unsigned>(n.rows), .threads = 256, .dependent = true};
  if (!vectors || pieces > kBlockVectors * 1024) return launch(context, norm_any_kernel<In, Out>, grid, n);
  if (pieces <= kWarpVectors * 32) {
    grid.blocks = ceil_div(n.rows, kNormWarps);
    grid.threads = kNormWarps * 32;
    return pieces <= 32 ? launch(context, norm_warp_kernel<1, In, Out>, grid, n)
                        : launch(context, norm_warp_kernel<kWarpVectors, In, Out>, grid, n);
  }
  grid.threads = ceil_div(pieces, kBlockVectors * 32) * 32;
  launch(context, norm_block_kernel<In, Out>, grid, n);
}

// `residual` may be null. P has x, weight, out and eps.
template <class P>
void rms_norm_rows(const P& p, const Tensor* residual, Context& context) {
  const bool vectors =
      has_vectors(p.x) && has_vectors(p.out) && has_vectors(p.weight) && (!residual || has_vectors(*residual));
  with_activation(p.x.dtype, [&](auto in) {
    with_activation(p.out.dtype, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      const Norm<In, Out> n{rows_of<const In>(p.x), rows_of<Out>(p.out), residual ? residual->template data<float>() : nullptr,
                            residual ? residual->stride[0] : 0, p.weight.raw(), p.weight.dtype, row_count(p.x),
                            static_cast<int>(row_width(p.x)), p.eps};
      launch_norm(context, n, vectors);
    });
  });
}

}  // namespace edgewise::cuda
