// out[i] = table[index[i]]: what `embedding` and `gather_rows` have in common.
#pragma once

#include <string>

#include "core/element.h"
#include "core/op.h"
#include "core/rows.h"

namespace edgewise {

struct RowLookup {
  const char* index_name;
  Tensor index, table, out;  // i32 [n], [rows, width], [n, width]
};

// Throws, naming the index argument, when the index is not a row of the table.
inline int64_t looked_up_row(const RowLookup& p, int64_t i) {
  const int64_t r = p.index.data<int32_t>()[i * p.index.stride[0]];
  if (r >= 0 && r < p.table.shape[0]) return r;
  throw OpError(p.index_name, std::to_string(r) + " at [" + std::to_string(i) + "] is not within [0, " +
                                  std::to_string(p.table.shape[0]) + ")");
}

inline void row_lookup_reference(const RowLookup& p, Context&) {
  for (int64_t i = 0; i < p.out.shape[0]; ++i) {
    const int64_t r = looked_up_row(p, i);
    for (int64_t c = 0; c < p.out.shape[1]; ++c) set(p.out, {i, c}, get(p.table, {r, c}));
  }
}

}  // namespace edgewise
