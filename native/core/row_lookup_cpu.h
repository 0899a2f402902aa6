// The CPU kernel of RowLookup, for inclusion by cpu.cc files.
#pragma once

#include <cstring>
#include <type_traits>

#include "core/row_lookup.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

template <class In, class Out>
void look_up_rows(const RowLookup& p, Context& context) {
  const int64_t width = p.out.shape[1];
  context.parallel_for(p.out.shape[0], row_grain(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const In* in = row<In>(p.table, looked_up_row(p, i));
      Out* out = row<Out>(p.out, i);
      if constexpr (std::is_same_v<In, Out>) {
        std::memcpy(out, in, static_cast<size_t>(width) * sizeof(In));
      } else {
#pragma GCC ivdep
        for (int64_t c = 0; c < width; ++c) out[c] = from_f32<Out>(to_f32(in[c]));
      }
    }
  });
}

template <class In>
void look_up_rows_from(const RowLookup& p, Context& context) {
  p.out.dtype == DType::f32 ? look_up_rows<In, float>(p, context) : look_up_rows<In, bf16>(p, context);
}

void row_lookup_cpu(const RowLookup& p, Context& context) {
  switch (p.table.dtype) {
    case DType::f32: return look_up_rows_from<float>(p, context);
    case DType::bf16: return look_up_rows_from<bf16>(p, context);
    default: return look_up_rows_from<f16>(p, context);
  }
}

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
