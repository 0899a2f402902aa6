// Canonical rows: what kv_pack and kv_unpack share. Their CPU kernels are the reference: copies of whole vectors.
#pragma once

#include "core/kv_layout.h"

namespace edgewise {

struct KvCopy {
  Tensor rows;   // u8 [T, row_bytes], canonical (KvLayout)
  Tensor slots;  // i32 [T]: page * 64 + offset
  KvPool pool;
};

// `heads` is the number of kv heads, 0 for MLA; the head dimension follows from the row's bytes.
inline KvCopy parse_kv_copy(const Args& a) {
  KvCopy p;
  p.rows = a.dense("rows", {DType::u8}, {-1, -1});
  p.slots = a.dense("slots", {DType::i32}, {p.rows.shape[0]});
  KvLayout layout{parse_kv_format(a), 1, 0};
  const int64_t heads = a.integer("heads", 0, 4096);
  if (heads > 0) layout.vectors = static_cast<int>(2 * heads);
  const int64_t bytes = p.rows.shape[1] - (layout.scaled_by_token() ? 4 * layout.vectors : 0);
  layout.dim = bytes / (layout.vectors * layout.element_bytes());
  if (bytes <= 0 || layout.row_bytes() != p.rows.shape[1])
    throw OpError("rows", std::to_string(p.rows.shape[1]) + " bytes are not a whole row of " + std::to_string(heads) +
                              " heads");
  p.pool = parse_kv_pool(a, layout);
  return p;
}

// Calls part(pool bytes, row bytes, n) for every contiguous part of every token.
template <class F>
void for_each_part(const KvCopy& p, F part) {
  const KvLayout& layout = p.pool.layout;
  const int64_t n = layout.vector_bytes();
  for (int64_t t = 0; t < p.rows.shape[0]; ++t) {
    const int32_t slot = p.slots.data<int32_t>()[t];
    check_slot(slot, p.pool.pages());
    if (slot < 0) throw std::runtime_error("slot -1 names no token");
    const int64_t page = slot / kPageTokens, token = slot % kPageTokens;
    uint8_t* row = p.rows.data<uint8_t>() + t * layout.row_bytes();
    for (int v = 0; v < layout.vectors; ++v) part(p.pool.at(page, v, token), row + v * n, n);
    if (layout.scaled_by_token())
      part(reinterpret_cast<uint8_t*>(p.pool.scale_at(page, token, 0)), row + layout.vectors * n, 4 * layout.vectors);
  }
}

}  // namespace edgewise
