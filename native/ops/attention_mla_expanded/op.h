// attention_mla_expanded: multi-head latent attention with the latent rows projected up to keys and values per head,
// which costs less than the absorbed form when many queries share them. Same context as attention_mla.
//   k_h = [ kv_up[h, 0 .. nope] . latent | rope ]     v_h = kv_up[h, nope .. nope + v] . latent
#pragma once

#include "core/kv_read.h"

namespace edgewise {

struct AttentionMlaExpanded {
  Tensor q;       // act [T, heads, nope + R], outer dimensions may be strided, as of latent and out
  Tensor latent;  // act [T, L + R]
  Tensor kv_up;   // bf16 | f16 | f32 [heads, nope + v, L]
  Tensor out;     // act [T, heads, v]
  KvPool pool;
  KvRows rows;
  float softmax_scale;
  float scale;  // static scale of the format fp8

  int64_t tokens() const { return q.shape[0]; }
  int64_t heads() const { return q.shape[1]; }
  int64_t latent_dim() const { return kv_up.shape[2]; }
  int64_t rope_dim() const { return latent.shape[1] - latent_dim(); }
  int64_t nope_dim() const { return q.shape[2] - rope_dim(); }
  int64_t v_dim() const { return out.shape[2]; }
};

inline AttentionMlaExpanded parse_attention_mla_expanded(const Args& a) {
  AttentionMlaExpanded p;
  p.q = a.tensor("q", {DType::f32, DType::bf16}, {-1, -1, -1});
  const int64_t T = p.q.shape[0], heads = p.q.shape[1];
  if (heads < 1 || heads > 1024) throw OpError("q", "needs 1 to 1024 heads");
  p.latent = a.tensor("latent", {p.q.dtype}, {T, -1});
  p.out = a.tensor("out", {p.q.dtype}, {T, heads, -1});
  p.kv_up = a.dense("kv_up", {DType::bf16, DType::f16, DType::f32}, {heads, -1, -1});
  const int64_t L = p.latent_dim();
  if (L % 64 != 0 || L < 64 || L > 2048) throw OpError("kv_up", "kv_lora must be a multiple of 64 from 64 to 2048");
  if (p.rope_dim() < 0 || p.rope_dim() % 8 != 0) throw OpError("latent", "rope dims must be a multiple of 8");
  if (p.nope_dim() < 8 || p.nope_dim() % 8 != 0) throw OpError("q", "nope dims must be a multiple of 8");
  if (p.v_dim() < 8 || p.v_dim() % 8 != 0) throw OpError("out", "v dims must be a multiple of 8");
  if (p.kv_up.shape[1] != p.nope_dim() + p.v_dim())
    throw OpError("kv_up", "must have nope + v = " + std::to_string(p.nope_dim() + p.v_dim()) + " rows per head");
  p.pool = parse_kv_pool(a, {parse_kv_format(a), 1, p.latent.shape[1]});
  p.rows = parse_kv_rows(a);
  p.softmax_scale = static_cast<float>(a.number("softmax_scale"));
  p.scale = parse_kv_scale(a, "scale");
  return p;
}

}  // namespace edgewise
