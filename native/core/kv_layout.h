// The KV cache of one layer: formats, the byte order within a page, canonical rows. Nothing else knows the byte order.
#pragma once

#include <cstdint>

#include "core/op.h"

namespace edgewise {

constexpr int kPageTokens = 64;

// Names the byte order below; changes with it. gpu-node/kv/format.ts states the same number.
constexpr int kKvLayoutId = 1;

// bf16 and f32 are stored as they are. fp8: e4m3 of value / scale, one static scale per layer (GQA: one for k, one for
// v). fp8_token: e4m3 of value / scale with a scale per token and vector in a side array f32 [pages, 64, vectors].
enum class KvFormat : uint8_t { f32, bf16, fp8, fp8_token };

// What a token stores is `vectors` vectors of `dim` elements, in canonical order:
//   GQA   [ k head 0 | k head 1 | .. | v head 0 | v head 1 | .. ]   vectors = 2 * heads, dim = head_dim
//   MLA   [ latent, rope ]                                          vectors = 1, dim = kv_lora + rope
// In a page the tokens of one vector lie together, so that attention streams one head without touching the others:
//   page  [ vector 0: token 0 .. 63 | vector 1: token 0 .. 63 | .. ]
struct KvLayout {
  KvFormat format = KvFormat::f32;
  int vectors = 0;
  int64_t dim = 0;

  int element_bytes() const { return format == KvFormat::f32 ? 4 : format == KvFormat::bf16 ? 2 : 1; }
  int64_t vector_bytes() const { return dim * element_bytes(); }
  int64_t page_bytes() const { return kPageTokens * vectors * vector_bytes(); }
  // Byte offset within a page.
  int64_t offset(int vector, int64_t token) const { return (vector * kPageTokens + token) * vector_bytes(); }

  bool scaled_by_token() const { return format == KvFormat::fp8_token; }
  // Index into the side array of scales.
  int64_t scale_index(int64_t page, int64_t token, int vector) const {
    return (page * kPageTokens + token) * vectors + vector;
  }

  // Canonical row of a token: the vectors' bytes in order, then for fp8_token their scales as f32.
  int64_t row_bytes() const { return vectors * (vector_bytes() + (scaled_by_token() ? 4 : 0)); }
};

// The pool of one layer, checked against a layout.
struct KvPool {
  KvLayout layout;
  Tensor bytes;   // u8 [pages, page_bytes]
  Tensor scales;  // f32 [pages, 64, vectors], only for fp8_token

  int64_t pages() const { return bytes.shape[0]; }
  uint8_t* at(int64_t page, int vector, int64_t token) const {
    return bytes.data<uint8_t>() + page * layout.page_bytes() + layout.offset(vector, token);
  }
  float* scale_at(int64_t page, int64_t token, int vector) const {
    return scales.data<float>() + layout.scale_index(page, token, vector);
  }
};

inline KvFormat parse_kv_format(const Args& a) { return static_cast<KvFormat>(a.integer("format", 0, 3)); }

// The arguments `pool` and `scales`.
inline KvPool parse_kv_pool(const Args& a, const KvLayout& layout) {
  KvPool pool{layout, a.dense("pool", {DType::u8}, {-1, layout.page_bytes()}), {}};
  pool.scales = a.optional("scales", {DType::f32}, {pool.pages(), kPageTokens, layout.vectors});
  if (layout.scaled_by_token() != (pool.scales.storage != nullptr))
    throw OpError("scales", layout.scaled_by_token() ? "is needed by the format fp8-token"
                                                     : "belongs to the format fp8-token only");
  if (pool.scales.storage && !pool.scales.contiguous()) throw OpError("scales", "must be contiguous");
  return pool;
}

// A static scale; the formats that have none ignore it.
inline float parse_kv_scale(const Args& a, const char* name) {
  const float scale = static_cast<float>(a.number(name));
  if (!(scale > 0 && scale < 1e30f)) throw OpError(name, "must be positive");
  return scale;
}

// A write slot is page * 64 + offset; -1 means that the token is not stored.
inline void check_slot(int32_t slot, int64_t pages) {
  if (slot < -1 || slot >= pages * kPageTokens)
    throw std::runtime_error("slot " + std::to_string(slot) + " lies outside of " + std::to_string(pages) + " pages");
}

}  // namespace edgewise
