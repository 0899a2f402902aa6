// Rotary position embedding, in place. Su et al., "RoFormer", https://arxiv.org/abs/2104.09864.
//   x            f32|bf16 [T, heads, D]   D even; the caller slices the rotary dimensions out of a wider head
//   positions    i32 [T]
//   inv_freq     f32 [D/2]                after any frequency scaling (llama3, yarn)
//   interleaved  0: pairs (i, i + D/2), as in Llama; 1: pairs (2i, 2i + 1), as in DeepSeek; results stay in place
//   scale        multiplies cos and sin (yarn's attention factor)
// The angle is f32(position) * inv_freq rounded to f32, as PyTorch forms it; cos and sin of that angle are exact to f32.
#pragma once

#include "core/op.h"

namespace edgewise {

struct Rope {
  Tensor x, positions, inv_freq;
  bool interleaved;
  float scale;
};

inline Rope parse_rope(const Args& args) {
  Rope p;
  p.x = args.tensor("x", {DType::f32, DType::bf16}, {-1, -1, -1});
  if (p.x.shape[2] % 2 != 0) throw OpError("x", "must have an even last dimension, is " + p.x.describe());
  p.positions = args.tensor("positions", {DType::i32}, {p.x.shape[0]});
  p.inv_freq = args.tensor("inv_freq", {DType::f32}, {p.x.shape[2] / 2});
  p.interleaved = args.integer("interleaved", 0, 1) == 1;
  p.scale = static_cast<float>(args.number("scale"));
  return p;
}

}  // namespace edgewise
