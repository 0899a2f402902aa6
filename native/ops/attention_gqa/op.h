// attention_gqa: causal grouped-query attention over the paged cache and the step's own keys and values.
// Query head h reads kv head h / (heads / kv_heads). Past tokens come from the pool (positions 0 .. kv_len - n), the n
// new ones from k and v of this call, whether or not they are stored. Rows with kv_len 0 give zeros.
#pragma once

#include "core/kv_read.h"

namespace edgewise {

struct AttentionGqa {
  Tensor q;     // act [T, heads, D], outer dimensions may be strided, as of k, v and out
  Tensor k, v;  // act [T, kv_heads, D]
  Tensor out;   // act [T, heads, D]
  KvPool pool;
  KvRows rows;
  float softmax_scale;
  float k_scale, v_scale;  // static scales of the format fp8
  bool deterministic;      // a token has the same bits in a chunk of any length

  int64_t tokens() const { return q.shape[0]; }
  int64_t heads() const { return q.shape[1]; }
  int64_t kv_heads() const { return k.shape[1]; }
  int64_t dim() const { return q.shape[2]; }
};

inline AttentionGqa parse_attention_gqa(const Args& a) {
  AttentionGqa p;
  p.q = a.tensor("q", {DType::f32, DType::bf16}, {-1, -1, -1});
  const int64_t T = p.q.shape[0], heads = p.q.shape[1], dim = p.q.shape[2];
  if (dim % 8 != 0 || dim < 8 || dim > 1024) throw OpError("q", "head dim must be a multiple of 8 from 8 to 1024");
  if (heads < 1 || heads > 1024) throw OpError("q", "needs 1 to 1024 heads");
  p.k = a.tensor("k", {p.q.dtype}, {T, -1, dim});
  const int64_t kv_heads = p.k.shape[1];
  if (kv_heads < 1 || heads % kv_heads != 0) throw OpError("k", "kv heads must divide the heads of q");
  p.v = a.tensor("v", {p.q.dtype}, {T, kv_heads, dim});
  p.out = a.tensor("out", {p.q.dtype}, {T, heads, dim});
  p.pool = parse_kv_pool(a, {parse_kv_format(a), static_cast<int>(2 * kv_heads), dim});
  p.rows = parse_kv_rows(a);
  p.softmax_scale = static_cast<float>(a.number("softmax_scale"));
  p.k_scale = parse_kv_scale(a, "k_scale");
  p.v_scale = parse_kv_scale(a, "v_scale");
  p.deterministic = a.integer("deterministic", 0, 1) != 0;
  return p;
}

}  // namespace edgewise
