// Attention of one query, written out: the reference kernels of all attention ops are loops around it.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/kv_read.h"

namespace edgewise {

// out[dim_v] = softmax(scale * k q) v over `n` tokens; key and value of token j lie at k + j * stride_k and
// v + j * stride_v. Accumulates in f64.
inline void attend(const float* q, int64_t dim_k, const float* k, int64_t stride_k, const float* v, int64_t stride_v,
                   int64_t dim_v, int64_t n, float scale, float* out) {
  std::vector<double> weight(n);
  double largest = -INFINITY, total = 0;
  for (int64_t j = 0; j < n; ++j) {
    double dot = 0;
    for (int64_t i = 0; i < dim_k; ++i) dot += static_cast<double>(q[i]) * k[j * stride_k + i];
    weight[j] = dot * scale;
    largest = std::max(largest, weight[j]);
  }
  for (double& w : weight) total += w = std::exp(w - largest);
  for (int64_t i = 0; i < dim_v; ++i) {
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += weight[j] * v[j * stride_v + i];
    out[i] = static_cast<float>(sum / total);
  }
}

// An element of an act tensor.
inline float act_at(const Tensor& t, int64_t offset) {
  return t.dtype == DType::f32 ? t.data<float>()[offset] : bf16_to_f32(t.data<uint16_t>()[offset]);
}

inline void set_act(const Tensor& t, int64_t offset, float value) {
  if (t.dtype == DType::f32) t.data<float>()[offset] = value;
  else t.data<uint16_t>()[offset] = f32_to_bf16(value);
}

// Runs attention(row) for every live row and zeroes act out[T, heads, D] elsewhere.
template <class F>
void for_each_row(const KvRows& rows, const Tensor& out, int64_t pages, F attention) {
  const int64_t tokens = out.shape[0];
  std::vector<KvRow> list(rows.count());
  std::vector<uint8_t> dead(tokens);
  check_kv_rows(rows, tokens, pages, list.data());
  find_dead_tokens(list.data(), rows.count(), tokens, dead.data());
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; dead[t] && h < out.shape[1]; ++h)
      for (int64_t i = 0; i < out.shape[2]; ++i) set_act(out, t * out.stride[0] + h * out.stride[1] + i, 0);
  for (const KvRow& row : list)
    if (row.live) attention(row);
}

// The stored vectors of the row's past tokens: f32 [past, dim] at out.
inline void load_past(const KvPool& pool, const KvRow& row, int vector, float scale, float* out) {
  for (int64_t j = 0; j < row.past; ++j)
    kv_load_vector(pool, row.pages[j / kPageTokens], j % kPageTokens, vector, scale, out + j * pool.layout.dim);
}

}  // namespace edgewise
