// kv_write_mla: stores the latent rows of a step's tokens in the KV cache.
#pragma once

#include "core/kv_layout.h"

namespace edgewise {

struct KvWriteMla {
  Tensor latent;       // act [T, L + R], dimension 0 may be strided
  KvPool pool;         // one vector: latent, rope
  Tensor write_slots;  // i32 [T]: page * 64 + offset, or -1: not stored
  Tensor stats;        // i32 [2] += {saturated, NaN}; a NaN also fails the kernel
  float scale;
};

inline KvWriteMla parse_kv_write_mla(const Args& a) {
  KvWriteMla p;
  p.latent = a.tensor("latent", {DType::f32, DType::bf16}, {-1, -1});
  if (p.latent.shape[1] < 1) throw OpError("latent", "has no elements per token");
  p.pool = parse_kv_pool(a, {parse_kv_format(a), 1, p.latent.shape[1]});
  p.write_slots = a.dense("write_slots", {DType::i32}, {p.latent.shape[0]});
  p.stats = a.dense("stats", {DType::i32}, {2});
  p.scale = parse_kv_scale(a, "scale");
  return p;
}

}  // namespace edgewise
