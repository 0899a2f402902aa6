// Attention of one query of one head by a block, in f32, for any head dimension, format and page order: the kernel of f32
// activations and of shapes that the tensor-core kernels do not take. Context tokens are taken 128 at a time from position
// 0 on, so the bits of a query depend on nothing but its own context.
#pragma once

#include "cuda/device_code.cuh"
#include "cuda/kv_rows.cuh"

namespace edgewise::cuda {

constexpr int kPlainThreads = 128;

// The key or value vector of one context token.
struct VectorRef {
  const void* at;  // block of 64 tokens of a page, or the vector itself in a tensor of the call
  int token;       // within the page; -1: new
  float scale;
};

__device__ inline float stored_element(const uint8_t* at, KvFormat format) {
  switch (format) {
    case KvFormat::f32: return *reinterpret_cast<const float*>(at);
    case KvFormat::bf16: return to_float(*reinterpret_cast<const bf16*>(at));
    default: return to_float(e4m3{*at});
  }
}

// offset(token, byte) within the block.
template <class Act, class Offset>
__device__ float element(const VectorRef& ref, int i, KvFormat format, int element_bytes, Offset offset) {
  if (ref.token < 0) return to_float(static_cast<const Act*>(ref.at)[i]);
  return stored_element(static_cast<const uint8_t*>(ref.at) + offset(ref.token, i * element_bytes), format) * ref.scale;
}

struct PlainShared {
  float weights[kPlainThreads];
  VectorRef values[kPlainThreads];
  float reduce[32];
};

// sums[dim_v] = sum of weights times values, in shared memory; returns the sum of the weights. q[dim_k] is in shared memory.
// key(position) and value(position) give a VectorRef, key_at(ref, i) and value_at(ref, i) their elements.
template <class Key, class KeyAt, class Value, class ValueAt>
__device__ float attend_plain(const float* q, int dim_k, float* sums, int dim_v, int context, float softmax_scale,
                              PlainShared& shared, Key key, KeyAt key_at, Value value, ValueAt value_at) {
  const int thread = threadIdx.x;
  float largest = -INFINITY, total = 0;
  for (int d = thread; d < dim_v; d += kPlainThreads) sums[d] = 0;
  __syncthreads();  // q is there
  for (int first = 0; first < context; first += kPlainThreads) {
    const int n = min(kPlainThreads, context - first);
    float score = -INFINITY;
    if (thread < n) {
      const VectorRef k = key(first + thread);
      float dot = 0;
      for (int i = 0; i < dim_k; ++i) dot += q[i] * key_at(k, i);
      score = dot * softmax_scale;
    }
    const float top = fmaxf(largest, block_max(score, shared.reduce));
    const float weight = thread < n ? expf(score - top) : 0.0f, fade = expf(largest - top);
    shared.weights[thread] = weight;
    if (thread < n) shared.values[thread] = value(first + thread);
    total = total * fade + block_sum(weight, shared.reduce);
    largest = top;
    for (int d = thread; d < dim_v; d += kPlainThreads) {
      float sum = sums[d] * fade;
      for (int j = 0; j < n; ++j) sum += shared.weights[j] * value_at(shared.values[j], d);
      sums[d] = sum;
    }
    __syncthreads();
  }
  return total;
}

}  // namespace edgewise::cuda
