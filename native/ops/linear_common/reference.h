// The obvious kernels of the linear and expert ops: element by element, f64 sums.
#pragma once

#include <cmath>
#include <string>

#include "core/element.h"
#include "ops/linear_common/parse.h"

namespace edgewise {

inline double number_at(DType dtype, const void* p, int64_t i) {
  switch (dtype) {
    case DType::f32: return static_cast<const float*>(p)[i];
    case DType::bf16: return bf16_to_f32(static_cast<const uint16_t*>(p)[i]);
    case DType::f16: return f16_to_f32(static_cast<const uint16_t*>(p)[i]);
    case DType::e4m3: return e4m3_to_f32(static_cast<const uint8_t*>(p)[i]);
    default: throw std::logic_error("not a float dtype");
  }
}

inline double value_of(const WeightView& w, int64_t n, int64_t k) {
  if (w.form == WeightForm::dense) return number_at(w.dtype, w.data, n * w.k + k);
  const int64_t s = n / w.block_n * w.segments + k / w.block_k;
  const auto scale = static_cast<float>(number_at(w.scale_dtype, w.scale, s));
  if (w.form == WeightForm::fp8) return static_cast<float>(number_at(DType::e4m3, w.data, n * w.k + k)) * scale;
  const auto byte = static_cast<uint8_t>(w.data[(n * w.k + k) / 2]);
  const int code = k % 2 ? byte >> 4 : byte & 15;
  return static_cast<float>(code - (w.zero ? int{w.zero[s]} : 8)) * scale;
}

// x: `k` contiguous elements that begin at element `at` of the tensor.
inline double dot(const Tensor& x, int64_t at, const WeightView& w, int64_t n) {
  double sum = 0;
  for (int64_t k = 0; k < w.k; ++k) sum += number_at(x.dtype, x.raw(), at + k) * value_of(w, n, k);
  return sum;
}

inline void linear_reference(const LinearCall& p) {
  const WeightView w = view_of(p.w);
  for (int64_t m = 0; m < p.x.shape[0]; ++m)
    for (int64_t n = 0; n < w.n; ++n) {
      const double bias = p.bias.storage ? get(p.bias, {n}) : 0.0;
      set(p.out, {m, n}, static_cast<float>(dot(p.x, m * p.x.stride[0], w, n) + bias));
    }
}

// The expert at ids [t, j]; -1 stands for none.
inline int64_t expert_at(const Tensor& ids, int64_t experts, int64_t t, int64_t j) {
  const int32_t e = get_int(ids, {t, j});
  if (e < -1 || e >= experts)
    throw OpError("ids", "expert " + std::to_string(e) + " at [" + std::to_string(t) + ", " + std::to_string(j) +
                             "] is out of range, there are " + std::to_string(experts));
  return e;
}

inline void gate_up_reference(const GateUpCall& p) {
  for (int64_t t = 0; t < p.ids.shape[0]; ++t)
    for (int64_t j = 0; j < p.ids.shape[1]; ++j) {
      const int64_t e = expert_at(p.ids, p.gate.experts, t, j);
      for (int64_t n = 0; n < p.gate.n; ++n) {
        double value = 0;
        if (e >= 0) {
          const double gate = dot(p.x, t * p.x.stride[0], view_of(p.gate, e), n);
          value = gate / (1 + std::exp(-gate)) * dot(p.x, t * p.x.stride[0], view_of(p.up, e), n);
        }
        set(p.out, {t, j, n}, static_cast<float>(value));
      }
    }
}

inline void down_reference(const DownCall& p) {
  for (int64_t t = 0; t < p.ids.shape[0]; ++t)
    for (int64_t n = 0; n < p.down.n; ++n) {
      double sum = 0;
      for (int64_t j = 0; j < p.ids.shape[1]; ++j) {
        const int64_t e = expert_at(p.ids, p.down.experts, t, j);
        if (e < 0) continue;
        const double weight = get(p.weights, {t, j});
        sum += weight * dot(p.x, t * p.x.stride[0] + j * p.x.stride[1], view_of(p.down, e), n);
      }
      set(p.out, {t, n}, static_cast<float>(sum));
    }
}

}  // namespace edgewise
