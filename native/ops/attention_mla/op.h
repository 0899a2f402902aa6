// attention_mla: causal multi-head latent attention in its absorbed form (DeepSeek-V2, arXiv 2405.04434, 2.1.2): all
// heads read the same latent rows, which are keys (latent and rope) and values (latent alone). Past tokens come from
// the pool, the row's new ones from `latent` of this call. Rows with kv_len 0 give zeros.
#pragma once

#include "core/kv_read.h"

namespace edgewise {

struct AttentionMla {
  Tensor q;       // act [T, heads, L + R], absorbed; outer dimensions may be strided, as of latent and out
  Tensor latent;  // act [T, L + R]
  Tensor out;     // act [T, heads, L]
  KvPool pool;
  KvRows rows;
  float softmax_scale;
  float scale;         // static scale of the format fp8
  bool deterministic;  // a token has the same bits in a chunk of any length

  int64_t tokens() const { return q.shape[0]; }
  int64_t heads() const { return q.shape[1]; }
  int64_t width() const { return q.shape[2]; }
  int64_t latent_dim() const { return out.shape[2]; }
};

inline AttentionMla parse_attention_mla(const Args& a) {
  AttentionMla p;
  p.q = a.tensor("q", {DType::f32, DType::bf16}, {-1, -1, -1});
  const int64_t T = p.q.shape[0], heads = p.q.shape[1], width = p.q.shape[2];
  if (heads < 1 || heads > 1024) throw OpError("q", "needs 1 to 1024 heads");
  p.latent = a.tensor("latent", {p.q.dtype}, {T, width});
  p.out = a.tensor("out", {p.q.dtype}, {T, heads, -1});
  const int64_t L = p.out.shape[2];
  if (L % 64 != 0 || L < 64 || L > 2048) throw OpError("out", "kv_lora must be a multiple of 64 from 64 to 2048");
  if (width < L || (width - L) % 8 != 0) throw OpError("q", "rope dims must be a multiple of 8");
  p.pool = parse_kv_pool(a, {parse_kv_format(a), 1, width});
  p.rows = parse_kv_rows(a);
  p.softmax_scale = static_cast<float>(a.number("softmax_scale"));
  p.scale = parse_kv_scale(a, "scale");
  p.deterministic = a.integer("deterministic", 0, 1) != 0;
  return p;
}

}  // namespace edgewise
