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

  explicit MlaArgs(const AttentionMla& p)
      : q_stride{p.q.stride[0], p.q.stride[1]}, latent_stride(p.latent.stride[0]),
        out_stride{p.out.stride[0], p.out.stride[1]}, page_bytes(p.pool.layout.page_bytes()),
        pool(p.pool.bytes.data<uint8_t>()),
        scales(p.pool.layout.scaled_by_token() ? p.pool.scales.data<float>() : nullptr),
        rows(p.rows, p.tokens(), p.pool.pages()), tokens(static_cast<int>(p.tokens())),
        heads(static_cast<int>(p.heads())), width(static_cast<int>(p.width())), L(static_cast<int>(p.latent_dim())),
        page(mla_page(p.pool.layout)), scale(p.pool.layout.format == KvFormat::fp8 ? p.scale : 1.0f),
        scale_log2(p.softmax_scale * 1.4426950408889634f) {}
};

}  // namespace edgewise::cuda
