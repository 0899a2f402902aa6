// The byte order of GQA pages on CUDA. Nothing else knows it: other code asks GqaOrder::offset().
//
// A page holds 64 tokens of every kv head; keys and values of a head are adjacent, so that one bulk copy brings both:
//   page   [ k head 0 | v head 0 | k head 1 | v head 1 | .. ]     each 64 * vector_bytes
// Vectors whose bytes are a multiple of 64, in fp8 and bf16, lie as attention_gqa's tensor-core kernel reads them:
//   keys   [ bytes 0 .. 63 of tokens 0 .. 63 | bytes 64 .. 127 of tokens 0 .. 63 | .. ]
//          A lane of m16n8k16 reads 16 consecutive bytes of one token: the contraction order over dims is free, so these
//          are its elements of 4 (fp8) or 2 (bf16) steps.
//   values [ tokens 0 .. 15: tile 0, tile 1, .. | tokens 16 .. 31: .. ]      a tile is 16 tokens x 8 n dims, 512 bytes,
//          with n = 4 (fp8) or 2 (bf16): 32 chunks of 16 bytes, chunk (t, g) = tokens 4t .. 4t + 3 of dims n g .. n g + n - 1
//          chunk (t, g) is number 8 t + (g + 2 t) % 8; within it the 4 tokens of a dim are adjacent
//          Lane (g, t) reads chunk (t, g): pairs of tokens, as the contraction over tokens wants them, for n column tiles.
// Both are free of bank conflicts: any 8 consecutive lanes cover 128 bytes modulo 128.
// Other vectors, and f32: token after token.
#pragma once

#include "core/kv_layout.h"
#include "cuda/device_code.cuh"

namespace edgewise::cuda {

// Elements of values per 16-byte chunk are 4 tokens of this many dims.
template <class T>
constexpr int kValueChunkDims = 4 / static_cast<int>(sizeof(T));

struct GqaOrder {
  int vector_bytes;
  int heads;  // kv heads
  uint8_t element_bytes;
  bool tiled;

  explicit GqaOrder(const KvLayout& layout)
      : vector_bytes(static_cast<int>(layout.vector_bytes())), heads(layout.vectors / 2),
        element_bytes(static_cast<uint8_t>(layout.element_bytes())),
        tiled(layout.format != KvFormat::f32 && layout.vector_bytes() % 64 == 0) {}

  __device__ int64_t page_bytes() const { return int64_t{2 * kPageTokens} * heads * vector_bytes; }
  // Of the 64 tokens of a vector, 0 .. heads the keys, then the values (core/kv_layout.h).
  __device__ int64_t block_offset(int vector) const {
    const int block = vector < heads ? 2 * vector : 2 * (vector - heads) + 1;
    return int64_t{block} * kPageTokens * vector_bytes;
  }
  // Where byte `byte` of a key or value vector of a token lies in the block of its vector.
  __device__ int key_offset(int token, int byte) const {
    return tiled ? (byte / 64 * kPageTokens + token) * 64 + byte % 64 : token * vector_bytes + byte;
  }
  __device__ int value_offset(int token, int byte) const {
    if (!tiled) return token * vector_bytes + byte;
    const int element = byte / element_bytes, dims = 4 / element_bytes;
    const int g = element / dims % 8, t = token / 4 % 4;
    const int tile = token / 16 * (vector_bytes / (8 * dims * element_bytes)) + element / (8 * dims);
    return tile * 512 + (8 * t + (g + 2 * t) % 8) * 16 + (element % dims * 4 + token % 4) * element_bytes +
           byte % element_bytes;
  }
  // Within a page: byte `byte` (0 .. vector_bytes) of the vector of a token.
  __device__ int64_t offset(int vector, int token, int byte) const {
    return block_offset(vector) + (vector < heads ? key_offset(token, byte) : value_offset(token, byte));
  }
};

}  // namespace edgewise::cuda
