// Quantizing a vector for the KV cache, as core/kv_store.h defines it: what the writing kernels of GQA and MLA share.
#pragma once

#include "core/kv_layout.h"
#include "cuda/device_code.cuh"

namespace edgewise::cuda {

// The scale of a vector x[n] in fp8_token, by a whole warp: the largest finite magnitude becomes 448.
template <class Act>
__device__ float token_scale_of_warp(const Act* x, int n) {
  float largest = 0;
  for (int i = threadIdx.x % 32; i < n; i += 32) {
    const float magnitude = fabsf(to_float(x[i]));
    if (magnitude < INFINITY) largest = fmaxf(largest, magnitude);
  }
  largest = warp_max(largest);
  return largest == 0 ? 1.0f : fmaxf(largest / 448.0f, 0x1p-126f);
}

// e4m3 of value / scale. Counts what the format clips: beyond 448 with a static scale, infinities with the token's own.
template <KvFormat kFormat>
__device__ uint8_t quantize_e4m3(float value, float scale, int& saturated) {
  const float q = value / scale;
  saturated += fabsf(q) > (kFormat == KvFormat::fp8_token ? 464.0f : 448.0f) ? 1 : 0;
  return from_float<e4m3>(q).bits;
}

}  // namespace edgewise::cuda
