#include "core/float.h"
#include "core/rows.h"
#include "ops/cast/op.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

template <class In, class Out>
void cast_rows(const Cast& p, Context& context) {
  const int64_t width = row_width(p.x);
  context.parallel_for(row_count(p.x), row_grain(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const In* x = row<In>(p.x, r);
      Out* out = row<Out>(p.out, r);
#pragma GCC ivdep
      for (int64_t c = 0; c < width; ++c) out[c] = from_f32<Out>(to_f32(x[c]));
    }
  });
}

template <class In>
void cast_from(const Cast& p, Context& context) {
  switch (p.out.dtype) {
    case DType::f32: return cast_rows<In, float>(p, context);
    case DType::bf16: return cast_rows<In, bf16>(p, context);
    case DType::f16: return cast_rows<In, f16>(p, context);
    default: return cast_rows<In, e4m3>(p, context);
  }
}

void cast_cpu(const Cast& p, Context& context) {
  switch (p.x.dtype) {
    case DType::f32: return cast_from<float>(p, context);
    case DType::bf16: return cast_from<bf16>(p, context);
    case DType::f16: return cast_from<f16>(p, context);
    default: return cast_from<e4m3>(p, context);
  }
}

EDGEWISE_CPU_KERNEL(Cast, cast_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
