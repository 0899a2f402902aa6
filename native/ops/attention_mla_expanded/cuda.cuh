// What the kernels of attention_mla_expanded share.
#pragma once

#include "cuda/kv_mla_layout.cuh"
#include "cuda/kv_rows.cuh"
#include "ops/attention_mla_expanded/op.h"

namespace edgewise::cuda {

// L: kv_lora, width: L + rope.
template <class Act>
struct ExpandedArgs {
  const Act *q, *latent;
  Act* out;
  int64_t q_token, q_head, latent_token, out_token, out_head;  // strides
  int heads, L, rope, nope, dim_v;
  const void* kv_up;  // [heads, nope + dim_v, L]
  const uint8_t* pool;
  const float* scales;  // fp8_token only
  int64_t page_bytes;
  MlaPage page;
  KvFormat format;
  float softmax_scale, scale;

  explicit ExpandedArgs(const AttentionMlaExpanded& p)
      : q(p.q.data<Act>()), latent(p.latent.data<Act>()), out(p.out.data<Act>()), q_token(p.q.stride[0]),
        q_head(p.q.stride[1]), latent_token(p.latent.stride[0]), out_token(p.out.stride[0]), out_head(p.out.stride[1]),
        heads(static_cast<int>(p.heads())), L(static_cast<int>(p.latent_dim())), rope(static_cast<int>(p.rope_dim())),
        nope(static_cast<int>(p.nope_dim())), dim_v(static_cast<int>(p.v_dim())), kv_up(p.kv_up.raw()),
        pool(p.pool.bytes.data<uint8_t>()), scales(p.pool.scales.storage ? p.pool.scales.data<float>() : nullptr),
        page_bytes(p.pool.layout.page_bytes()), page(mla_page(p.pool.layout)), format(p.pool.layout.format),
        softmax_scale(p.softmax_scale), scale(p.scale) {}
};

// Any shape: cuda_plain.cu.
template <class Act>
void expanded_plain(const ExpandedArgs<Act>& a, DType weight, const DeviceRows& rows, Context& context);

}  // namespace edgewise::cuda
