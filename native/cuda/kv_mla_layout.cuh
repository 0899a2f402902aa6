// The byte order of MLA pages on CUDA; nothing else knows it. A page is 64 tokens x `dim` elements without padding, and
// lies in memory exactly as attention wants it in shared memory, so that one bulk copy brings it there.
//
// Tiled order of 1-byte elements (fp8 and fp8-token alike), dim a multiple of 32. Measured without bank conflicts in
// both roles of a page, as keys (rows of an MMA operand are tokens) and as values (rows are columns):
//   page   = 4 groups of 16 tokens
//   group  = dim / 32 tiles of 32 columns
//   tile   = 32 chunks of 16 bytes: chunk (a, b) holds token pair a = 0..7 x column octet b = 0..3
//   chunk  = (t, c) (t, c+1) (t+1, c) (t+1, c+1) | the same of c+2 | of c+4 | of c+6       t = 2a, c = 8b
// In a tile chunk (a, b) has the slot  8 (a >> 1) + 4 (a & 1) + 2 ((b >> 1) ^ ((a >> 1) & 1)) + (b & 1).
//
// Swizzled order of bf16, dim a multiple of 64: token after token, the 16-byte chunk i of token t at i ^ (t & 7), for
// ldmatrix without bank conflicts in both roles.
//
// Other widths, and f32: token after token.
#pragma once

#include <cstdint>

#include "core/kv_layout.h"
#include "cuda/device_code.cuh"

namespace edgewise::cuda {

// Names the byte orders of CUDA pages, these and kv_gqa_layout.cuh; changes with either.
constexpr int kCudaKvLayoutId = 2;

enum class MlaOrder : uint8_t { plain, tiled, swizzled };

struct MlaPage {
  int dim, element_bytes;
  MlaOrder order;

  // Byte offset of an element within its page.
  __host__ __device__ int offset(int token, int column) const {
    if (order == MlaOrder::tiled) return (token / 16 * (dim / 32) + column / 32) * 512 + 16 * slot(token, column) +
                                         column % 8 / 2 * 4 + token % 2 * 2 + column % 2;
    if (order == MlaOrder::swizzled)
      return token * dim * 2 + (column / 8 ^ (token & 7)) * 16 + column % 8 * 2;
    return (token * dim + column) * element_bytes;
  }

  __host__ __device__ static int slot(int token, int column) {
    const int a = token % 16 / 2, b = column % 32 / 8;
    return slot_of_chunk(a, b);
  }
  __host__ __device__ static int slot_of_chunk(int a, int b) {
    return 8 * (a >> 1) + 4 * (a & 1) + 2 * ((b >> 1) ^ ((a >> 1) & 1)) + (b & 1);
  }
  // The token pair of a slot: of its 16 bytes, half-word 0 of every word is token 2a, half-word 1 token 2a + 1.
  __host__ __device__ static int pair_of_slot(int slot) { return slot >> 3 << 1 | (slot >> 2 & 1); }
};

inline MlaPage mla_page(const KvLayout& layout) {
  const int dim = static_cast<int>(layout.dim), bytes = layout.element_bytes();
  const MlaOrder order = bytes == 1 && dim % 32 == 0   ? MlaOrder::tiled
                         : bytes == 2 && dim % 64 == 0 ? MlaOrder::swizzled
                                                       : MlaOrder::plain;
  return {dim, bytes, order};
}

}  // namespace edgewise::cuda
