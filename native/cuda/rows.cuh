// Rows of tensors on the device (the twin of core/rows.h), eight elements at a time where their addresses allow it.
#pragma once

#include <cstdint>

#include "core/rows.h"
#include "cuda/device_code.cuh"

namespace edgewise::cuda {

// Elements that a thread moves at once: 16 bytes of a 16-bit type, two times 16 bytes of f32.
constexpr int kVector = 8;

// All dimensions but the last as one list of rows. Dimensions whose strides continue each other are one.
template <class T>
struct Rows {
  T* data;
  int64_t stride[kMaxRank - 1] = {};    // elements, innermost first
  uint32_t size[kMaxRank - 1] = {};
  int dims = 0;

  __device__ T* operator[](int64_t r) const {
    if (dims <= 1) return data + r * stride[0];
    int64_t offset = 0;
    for (int i = 0; i + 1 < kMaxRank - 1; ++i) {
      if (i + 1 >= dims) return data + offset + r * stride[i];
      offset += r % size[i] * stride[i];
      r /= size[i];
    }
    return data + offset + r * stride[kMaxRank - 2];
  }
};

template <class T>
Rows<T> rows_of(const Tensor& t) {
  Rows<T> rows{t.data<T>()};
  for (int i = t.rank - 2; i >= 0; --i) {
    if (t.shape[i] == 1) continue;
    const int last = rows.dims - 1;
    if (last >= 0 && t.stride[i] == rows.stride[last] * rows.size[last]) {
      rows.size[last] *= static_cast<uint32_t>(t.shape[i]);
      continue;
    }
    rows.stride[rows.dims] = t.stride[i];
    rows.size[rows.dims++] = static_cast<uint32_t>(t.shape[i]);
  }
  return rows;
}

// Whether every row of `t` is whole vectors at addresses that load_vector takes.
inline bool has_vectors(const Tensor& t) {
  const size_t bytes = dtype_size(t.dtype), align = std::min<size_t>(16, kVector * bytes);
  bool fits = row_width(t) % kVector == 0 && reinterpret_cast<uintptr_t>(t.raw()) % align == 0;
  for (int i = 0; i + 1 < t.rank; ++i) fits &= t.shape[i] <= 1 || t.stride[i] * static_cast<int64_t>(bytes) % align == 0;
  return fits;
}

// --- Eight elements as f32. -----------------------------------------------------------------------------------------

__device__ inline void load_vector(const float* p, float (&v)[kVector]) {
  const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

__device__ inline void put_pair(float (&v)[kVector], int pair, float2 two) { v[2 * pair] = two.x, v[2 * pair + 1] = two.y; }

__device__ inline void load_vector(const bf16* p, float (&v)[kVector]) {
  const uint4 a = *reinterpret_cast<const uint4*>(p);
  put_pair(v, 0, unpack_bf16x2(a.x)), put_pair(v, 1, unpack_bf16x2(a.y));
  put_pair(v, 2, unpack_bf16x2(a.z)), put_pair(v, 3, unpack_bf16x2(a.w));
}

__device__ inline void load_vector(const f16* p, float (&v)[kVector]) {
  const uint4 a = *reinterpret_cast<const uint4*>(p);
  put_pair(v, 0, unpack_f16x2(a.x)), put_pair(v, 1, unpack_f16x2(a.y));
  put_pair(v, 2, unpack_f16x2(a.z)), put_pair(v, 3, unpack_f16x2(a.w));
}

__device__ inline void load_vector(const e4m3* p, float (&v)[kVector]) {
  const uint2 a = *reinterpret_cast<const uint2*>(p);
  put_pair(v, 0, unpack_f16x2(e4m3x2_to_f16x2(a.x & 0xffffu))), put_pair(v, 1, unpack_f16x2(e4m3x2_to_f16x2(a.x >> 16)));
  put_pair(v, 2, unpack_f16x2(e4m3x2_to_f16x2(a.y & 0xffffu))), put_pair(v, 3, unpack_f16x2(e4m3x2_to_f16x2(a.y >> 16)));
}

__device__ inline void store_vector(float* p, const float (&v)[kVector]) {
  reinterpret_cast<float4*>(p)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

__device__ inline void store_vector(bf16* p, const float (&v)[kVector]) {
  *reinterpret_cast<uint4*>(p) = make_uint4(pack_bf16x2(v[0], v[1]), pack_bf16x2(v[2], v[3]), pack_bf16x2(v[4], v[5]),
                                            pack_bf16x2(v[6], v[7]));
}

__device__ inline void store_vector(f16* p, const float (&v)[kVector]) {
  *reinterpret_cast<uint4*>(p) = make_uint4(pack_f16x2(v[0], v[1]), pack_f16x2(v[2], v[3]), pack_f16x2(v[4], v[5]),
                                            pack_f16x2(v[6], v[7]));
}

__device__ inline void store_vector(e4m3* p, const float (&v)[kVector]) {
  const auto pair = [&](int i) { return static_cast<uint32_t>(pack_e4m3x2(v[i], v[i + 1])); };
  *reinterpret_cast<uint2*>(p) = make_uint2(pair(0) | pair(2) << 16, pair(4) | pair(6) << 16);
}

// Eight elements, or one when kWidth is 1: for kernels written once for aligned and for odd rows.
template <int kWidth, class T>
__device__ void load(const T* p, float (&v)[kWidth]) {
  if constexpr (kWidth == kVector) load_vector(p, v);
  else v[0] = to_float(*p);
}

template <int kWidth, class T>
__device__ void store(T* p, const float (&v)[kWidth]) {
  if constexpr (kWidth == kVector) store_vector(p, v);
  else *p = from_float<T>(v[0]);
}

}  // namespace edgewise::cuda
