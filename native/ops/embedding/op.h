// Rows of a table, by id.
//   ids    i32 [T]            each within [0, V); any other fails the kernel
//   table  f32|bf16|f16 [V, H]
//   out    f32|bf16 [T, H]
#pragma once

#include "core/op.h"
#include "core/row_lookup.h"

namespace edgewise {

struct Embedding : RowLookup {};

inline Embedding parse_embedding(const Args& args) {
  Embedding p;
  p.index_name = "ids";
  p.index = args.tensor("ids", {DType::i32}, {-1});
  p.table = args.tensor("table", {DType::f32, DType::bf16, DType::f16}, {-1, -1});
  p.out = args.tensor("out", {DType::f32, DType::bf16}, {p.index.shape[0], p.table.shape[1]});
  return p;
}

}  // namespace edgewise
