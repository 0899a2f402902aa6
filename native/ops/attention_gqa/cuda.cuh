// What the kernels of attention_gqa share.
#pragma once

#include "cuda/kv_gqa_layout.cuh"
#include "cuda/kv_rows.cuh"
#include "ops/attention_gqa/op.h"

namespace edgewise::cuda {

template <class Act>
struct GqaArgs {
  const Act *q, *k, *v;
  Act* out;
  int64_t q_token, q_head, k_token, k_head, v_token, v_head, out_token, out_head;  // strides
  int heads, kv_heads, group, dim;
  const uint8_t* pool;
  const float* scales;  // fp8_token only
  GqaOrder order;
  KvFormat format;
  float softmax_scale, k_scale, v_scale;

  explicit GqaArgs(const AttentionGqa& p)
      : q(p.q.data<Act>()), k(p.k.data<Act>()), v(p.v.data<Act>()), out(p.out.data<Act>()), q_token(p.q.stride[0]),
        q_head(p.q.stride[1]), k_token(p.k.stride[0]), k_head(p.k.stride[1]), v_token(p.v.stride[0]),
        v_head(p.v.stride[1]), out_token(p.out.stride[0]), out_head(p.out.stride[1]), heads(static_cast<int>(p.heads())),
        kv_heads(static_cast<int>(p.kv_heads())), group(heads / kv_heads), dim(static_cast<int>(p.dim())),
        pool(p.pool.bytes.data<uint8_t>()), scales(p.pool.scales.storage ? p.pool.scales.data<float>() : nullptr),
        order(p.pool.layout), format(p.pool.layout.format), softmax_scale(p.softmax_scale), k_scale(p.k_scale),
        v_scale(p.v_scale) {}
};

// Any shape: cuda/attention_plain.cuh.
template <class Act>
void gqa_plain(const GqaArgs<Act>& a, const DeviceRows& rows, Context& context);

}  // namespace edgewise::cuda
