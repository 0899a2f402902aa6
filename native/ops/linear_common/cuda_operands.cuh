// What the CUDA kernels of the linear and expert ops work on: matrices, rows, and groups of rows that share a matrix.
#pragma once

#include "cuda/launch.h"
#include "ops/linear_common/parse.h"

namespace edgewise::cuda {

// Weights (weights.h), one expert behind the other.
struct Matrix {
  const char* data;
  const char* scale;
  const uint8_t* zero;                // or null
  int64_t data_bytes, scales;         // of one expert
  int n, k, block_n, block_k, segments;  // segments: scales along a row
  WeightForm form;
  DType dtype, scale_dtype;
};

inline Matrix matrix_of(const Weights& w) {
  const WeightView v = view_of(w);
  Matrix m;
  m.data = v.data;
  m.scale = v.scale;
  m.zero = v.zero;
  m.data_bytes = w.form == WeightForm::int4 ? v.n * v.k / 2 : v.n * v.k * static_cast<int64_t>(dtype_size(v.dtype));
  m.scales = (v.n + v.block_n - 1) / v.block_n * v.segments;
  m.n = static_cast<int>(v.n);
  m.k = static_cast<int>(v.k);
  m.block_n = static_cast<int>(v.block_n);
  m.block_k = static_cast<int>(v.block_k);
  m.segments = static_cast<int>(v.segments);
  m.form = v.form;
  m.dtype = v.dtype;
  m.scale_dtype = v.scale_dtype;
  return m;
}

// Row p of x and of out: token p / slots, slot p % slots (the expert slot, or the head). Strides in elements.
struct Rows {
  const void* x;
  int64_t x_token, x_slot;
  void* out;
  int64_t out_token, out_slot;
  int slots;

  __device__ int64_t x_at(int p) const { return p / slots * x_token + p % slots * x_slot; }
  __device__ int64_t out_at(int p) const { return p / slots * out_token + p % slots * out_slot; }
};

// Some rows that meet the same matrix: pairs[first .. first + count).
struct Entry {
  int expert, first, count;  // expert -1: rows without one
};

// Groups known when the op is launched (row r of group g is p = r * groups + g), or found on the device (routing.cuh).
struct Groups {
  int groups = 0, rows = 0;        // without a list: rows of each group
  const Entry* entries = nullptr;  // null: no list
  const int* count = nullptr;      // entries in use
  const int* pairs = nullptr;
};

// The tile of at most kRows rows that a block works on: p(i) for i < count.
struct Tile {
  int expert, count;
  const int* pairs;
  int first, step;

  __device__ int p(int i) const { return pairs ? pairs[i] : first + i * step; }
};

// Tile number `index` of group blockIdx.z, or of the list. False: there is no such tile.
template <int kRows>
__device__ bool find_tile(const Groups& g, int index, Tile* tile) {
  if (g.entries) {
    if (index >= *g.count) return false;
    const Entry e = g.entries[index];
    *tile = {e.expert, e.count, g.pairs + e.first, 0, 0};
    return true;
  }
  const int first = index * kRows, group = blockIdx.z;
  *tile = {group, min(kRows, g.rows - first), nullptr, first * g.groups + group, g.groups};
  return true;
}

// Element i of a tensor of this dtype.
__device__ inline float element(DType dtype, const void* p, int64_t i) {
  switch (dtype) {
    case DType::bf16: return to_float(static_cast<const bf16*>(p)[i]);
    case DType::f16: return to_float(static_cast<const f16*>(p)[i]);
    case DType::e4m3: return to_float(static_cast<const e4m3*>(p)[i]);
    default: return static_cast<const float*>(p)[i];
  }
}

__device__ inline float silu(float x) { return x / (1.0f + expf(-x)); }

}  // namespace edgewise::cuda
