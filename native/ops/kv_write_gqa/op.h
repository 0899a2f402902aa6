// kv_write_gqa: stores the keys and values of a step's tokens in the KV cache.
#pragma once

#include "core/kv_layout.h"

namespace edgewise {

struct KvWriteGqa {
  Tensor k, v;         // act [T, heads, D], outer dimensions may be strided
  KvPool pool;         // vectors: k heads, then v heads
  Tensor write_slots;  // i32 [T]: page * 64 + offset, or -1: not stored
  Tensor stats;        // i32 [2] += {saturated, NaN}; a NaN also fails the kernel
  float k_scale, v_scale;
};

inline KvWriteGqa parse_kv_write_gqa(const Args& a) {
  KvWriteGqa p;
  p.k = a.tensor("k", {DType::f32, DType::bf16}, {-1, -1, -1});
  p.v = a.tensor("v", {p.k.dtype}, {p.k.shape[0], p.k.shape[1], p.k.shape[2]});
  if (p.k.shape[1] < 1 || p.k.shape[2] < 1) throw OpError("k", "has no elements per token");
  p.pool = parse_kv_pool(a, {parse_kv_format(a), static_cast<int>(2 * p.k.shape[1]), p.k.shape[2]});
  p.write_slots = a.dense("write_slots", {DType::i32}, {p.k.shape[0]});
  p.stats = a.dense("stats", {DType::i32}, {2});
  p.k_scale = parse_kv_scale(a, "k_scale");
  p.v_scale = parse_kv_scale(a, "v_scale");
  return p;
}

}  // namespace edgewise
