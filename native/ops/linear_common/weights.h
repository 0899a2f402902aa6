// Weight matrices as checkpoints store them, for every op that multiplies by one.
//
//   dense  [N, K]   bf16, f16 or f32
//   fp8    [N, K]   e4m3 codes, scale f32 [ceil(N / block_n), ceil(K / block_k)]; blocks at the edges are cut off
//   int4   [N, K/2] two codes per byte, the low nibble is the even element; scale [N, K / group], zero point
//                   u8 [N, K / group] or 8 everywhere (compressed-tensors `pack-quantized` bytes as they lie)
//
// value(n, k) = w | code * scale | (code - zero) * scale, a product rounded once to f32.
// Expert weights carry one more dimension in front of each of these.
#pragma once

#include "core/op.h"

namespace edgewise {

enum class WeightForm : uint8_t { dense, fp8, int4 };

struct Weights {
  WeightForm form = WeightForm::dense;
  int64_t experts = 1, n = 0, k = 0;
  int64_t block_n = 1, block_k = 0;  // elements that share a scale; block_k is the group of int4, K of a dense matrix
  Tensor data, scale, zero;          // scale and zero may be empty
};

// One matrix, as kernels see it.
struct WeightView {
  WeightForm form;
  DType dtype, scale_dtype;
  int64_t n, k, block_n, block_k;
  int64_t segments;  // scales along a row
  const char* data;
  const char* scale;
  const uint8_t* zero;  // or null
};

// Always inline: this header is compiled once per instruction set, and no function of one may be called from another.
[[gnu::always_inline]] static inline WeightView view_of(const Weights& w, int64_t expert = 0) {
  WeightView v;
  v.form = w.form;
  v.dtype = w.data.dtype;
  v.scale_dtype = w.scale.dtype;
  v.n = w.n;
  v.k = w.k;
  v.block_n = w.block_n;
  v.block_k = w.block_k;
  v.segments = (w.k + w.block_k - 1) / w.block_k;
  const int64_t row_bytes =
      w.form == WeightForm::int4 ? w.k / 2 : w.k * static_cast<int64_t>(dtype_size(w.data.dtype));
  const int64_t scales = (w.n + w.block_n - 1) / w.block_n * v.segments;
  v.data = w.data.data<char>() + expert * w.n * row_bytes;
  v.scale = w.scale.storage ? w.scale.data<char>() + expert * scales * static_cast<int64_t>(dtype_size(w.scale.dtype))
                            : nullptr;
  v.zero = w.zero.storage ? w.zero.data<uint8_t>() + expert * scales : nullptr;
  return v;
}

}  // namespace edgewise
