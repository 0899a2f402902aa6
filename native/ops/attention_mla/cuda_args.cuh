// What all kernels of the op take.
#pragma once

#include "cuda/kv_mla_layout.cuh"
#include "cuda/kv_rows.cuh"
#include "cuda/launch.h"
#include "ops/attention_mla/op.h"

namespace edgewise::cuda {

// L: kv_lora, width: L + rope.
struct MlaArgs {
  int64_t q_stride[2], latent_stride, out_stride[2], page_bytes;
  const uint8_t* pool;
  const float* scales;  // [pages, 64], or null
  DeviceRows rows;
  int tokens, heads, width, L;
  MlaPage page;
  float scale;       // of stored values; 1 unless the format is fp8
  float scale_log2;  // softmax scale * log2(e): exponentials are powers of two
};

inline MlaArgs mla_args(const AttentionMla& p) {
  const KvLayout& layout = p.pool.layout;
  MlaArgs a{.rows = {p.rows, p.tokens(), p.pool.pages()}};
  for (int i = 0; i < 2; ++i) a.q_stride[i] = p.q.stride[i], a.out_stride[i] = p.out.stride[i];
  a.latent_stride = p.latent.stride[0];
  a.page_bytes = layout.page_bytes();
  a.pool = p.pool.bytes.data<uint8_t>();
  a.scales = layout.scaled_by_token() ? p.pool.scales.data<float>() : nullptr;
  a.tokens = static_cast<int>(p.tokens());
  a.heads = static_cast<int>(p.heads());
  a.width = static_cast<int>(p.width());
  a.L = static_cast<int>(p.latent_dim());
  a.page = mla_page(layout);
  a.scale = layout.format == KvFormat::fp8 ? p.scale : 1.0f;
  a.scale_log2 = p.softmax_scale * 1.4426950408889634f;
  return a;
}

}  // namespace edgewise::cuda
