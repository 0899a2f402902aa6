// Reading the KV cache by rows of a step: checks every index first, then hands out pointers and values.
#pragma once

#include "core/float.h"
#include "core/kv_layout.h"

namespace edgewise {

// The arguments that say which tokens a call has and what they may read; see gpu-node/model/step.ts.
struct KvRows {
  Tensor page_table, row_slot, row_start, kv_len;  // i32 [slots, max_pages], [R], [R + 1], [R]
  int64_t count() const { return kv_len.shape[0]; }
};

inline KvRows parse_kv_rows(const Args& a) {
  KvRows r;
  r.page_table = a.tensor("page_table", {DType::i32}, {-1, -1});
  r.kv_len = a.dense("kv_len", {DType::i32}, {-1});
  r.row_slot = a.dense("row_slot", {DType::i32}, {r.kv_len.shape[0]});
  r.row_start = a.dense("row_start", {DType::i32}, {r.kv_len.shape[0] + 1});
  return r;
}

//   tokens of the call    [ .. | begin .. begin + count | .. ]
//   context of the row    [ past: in the pages | count new tokens ]
struct KvRow {
  int64_t begin = 0, count = 0, past = 0;
  bool live = false;  // false: the outputs of its tokens are zeros
  const int32_t* pages = nullptr;
};

// Checks row bounds, lengths, slots and page ids; throws before anything is read. Fills out[R].
void check_kv_rows(const KvRows& r, int64_t tokens, int64_t pages, KvRow* out);

// Fills dead[T]: 1 for tokens that no live row covers, whose outputs are zeros.
void find_dead_tokens(const KvRow* rows, int64_t count, int64_t tokens, uint8_t* dead);

// One stored vector as f32; `scale` is the static one of the format fp8.
inline void kv_load_vector(const KvPool& pool, int64_t page, int64_t token, int vector, float scale, float* out) {
  const KvLayout& layout = pool.layout;
  const uint8_t* from = pool.at(page, vector, token);
  if (layout.format == KvFormat::f32) {
    const auto* f = reinterpret_cast<const float*>(from);
    for (int64_t i = 0; i < layout.dim; ++i) out[i] = f[i];
  } else if (layout.format == KvFormat::bf16) {
    const auto* h = reinterpret_cast<const uint16_t*>(from);
    for (int64_t i = 0; i < layout.dim; ++i) out[i] = bf16_to_f32(h[i]);
  } else {
    if (layout.scaled_by_token()) scale = *pool.scale_at(page, token, vector);
    for (int64_t i = 0; i < layout.dim; ++i) out[i] = e4m3_to_f32(from[i]) * scale;
  }
}

}  // namespace edgewise
