// Rows of a matrix, by index: picks the hidden states whose logits are wanted.
//   x      f32|bf16 [T, H]
//   index  i32 [S]           each within [0, T); any other fails the kernel
//   out    f32|bf16 [S, H]
#pragma once

#include "core/op.h"
#include "core/row_lookup.h"

namespace edgewise {

struct GatherRows : RowLookup {};

inline GatherRows parse_gather_rows(const Args& args) {
  GatherRows p;
  p.index_name = "index";
  p.table = args.tensor("x", {DType::f32, DType::bf16}, {-1, -1});
  p.index = args.tensor("index", {DType::i32}, {-1});
  p.out = args.tensor("out", {DType::f32, DType::bf16}, {p.index.shape[0], p.table.shape[1]});
  return p;
}

}  // namespace edgewise
