// out[i] = table[index[i]], for `embedding` and `gather_rows`: eight elements a thread.
#pragma once

#include <type_traits>

#include "core/row_lookup.h"
#include "cuda/elementwise.cuh"

namespace edgewise::cuda {

template <class In, class Out>
struct Lookup {
  const int32_t* index;
  int64_t index_stride, table_rows;
  Rows<const In> table;
  Rows<Out> out;
  Fault fault;

  template <int kWidth>
  __device__ void run(int64_t row, int64_t column) const {
    const int32_t from = index[row * index_stride];
    if (from < 0 || from >= table_rows) return raise(fault, FaultCode::bad_index, from);
    float v[kWidth];
    load(table[from] + column, v);
    store(out[row] + column, v);
  }
};

inline void row_lookup_cuda(const RowLookup& p, Context& context) {
  const bool vectors = has_vectors(p.table) && has_vectors(p.out);
  with_type(p.table.dtype, [&](auto in) {
    with_activation(p.out.dtype, [&](auto out) {
      using In = decltype(in);
      using Out = decltype(out);
      if constexpr (!std::is_same_v<In, e4m3>) {
        const Lookup<In, Out> op{p.index.data<int32_t>(), p.index.stride[0], p.table.shape[0], rows_of<const In>(p.table),
                                 rows_of<Out>(p.out), fault_of(context)};
        launch_elementwise(context, op, p.out.shape[0], p.out.shape[1], vectors);
      }
    });
  });
}

}  // namespace edgewise::cuda
