// The byte order of GQA pages on CUDA. Nothing else knows it: other code asks GqaOrder::offset().
//
// A page holds 64 tokens of every kv head; keys and values of a head are adjacent:
//   page   [ head 0: keys, values | head 1 | .. ]     a head takes 128 * vector_bytes
// Vectors whose bytes are a multiple of 64, in fp8 and bf16, lie as attention_gqa's tensor-core kernel reads them, so that
// one bulk copy brings keys and values of 16, 32 or 64 tokens of a head:
//   head   [ tokens 0 .. 15: keys, values | tokens 16 .. 31 | tokens 32 .. 47 | tokens 48 .. 63 ]
//   keys   [ bytes 0 .. 63 of the 16 tokens | bytes 64 .. 127 of the 16 tokens | .. ]
//          A lane of m16n8k16 reads 16 consecutive bytes of one token: the contraction order over dims is free, so these
//          are its elements of 4 (fp8) or 2 (bf16) steps.
//   values [ tile 0 | tile 1 | .. ]      a tile is 8 n dims of the 16 tokens, 512 bytes, n = 4 (fp8) or 2 (bf16)
//          32 chunks of 16 bytes: chunk (t, g) = tokens 4t .. 4t + 3 of dims n g .. n g + n - 1, the 4 tokens of a dim adjacent
//          chunk (t, g) is number 8 t + (g + 2 t) % 8
//          Lane (g, t) reads chunk (t, g): pairs of tokens, as the contraction over tokens wants them, for n column tiles.
// Both are free of bank conflicts: any 8 consecutive lanes cover 128 bytes modulo 128.
// Other vectors, and f32: [ keys, token after token | values, token after token ].
#pragma once

#include "core/kv_layout.h"
#include "cuda/device_code.cuh"

namespace edgewise::cuda {

struct GqaOrder {
  int vector_bytes;
  int heads;  // kv heads
  uint8_t element_bytes;
  bool tiled;

  explicit GqaOrder(const KvLayout& layout)
      : vector_bytes(static_cast<int>(layout.vector_bytes())), heads(layout.vectors / 2),
        element_bytes(static_cast<uint8_t>(layout.element_bytes())),
        tiled(layout.format != KvFormat::f32 && layout.vector_bytes() % 64 == 0) {}

  __device__ int64_t head_bytes() const { return int64_t{2 * kPageTokens} * vector_bytes; }
  __device__ int64_t page_bytes() const { return heads * head_bytes(); }

  // Where a byte of the key or value vector of a token lies in the part of its head.
  __device__ int key_offset(int token, int byte) const {
    if (!tiled) return token * vector_bytes + byte;
    return token / 16 * 32 * vector_bytes + byte / 64 * 1024 + token % 16 * 64 + byte % 64;
  }
  __device__ int value_offset(int token, int byte) const {
    if (!tiled) return (kPageTokens + token) * vector_bytes + byte;
    const int element = byte / element_bytes, dims = 4 / element_bytes;
    const int g = element / dims % 8, t = token / 4 % 4;
    return (token / 16 * 32 + 16) * vector_bytes + element / (8 * dims) * 512 + (8 * t + (g + 2 * t) % 8) * 16 +
           (element % dims * 4 + token % 4) * element_bytes + byte % element_bytes;
  }
  // Within a page: byte `byte` (0 .. vector_bytes) of the vector of a token; vectors 0 .. heads are the keys, then come the
  // values (core/kv_layout.h).
  __device__ int64_t offset(int vector, int token, int byte) const {
    return vector < heads ? vector * head_bytes() + key_offset(token, byte)
                          : (vector - heads) * head_bytes() + value_offset(token, byte);
  }
};

}  // namespace edgewise::cuda
