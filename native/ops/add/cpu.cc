#include "core/float.h"
#include "core/rows.h"
#include "ops/add/op.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

template <class A, class B>
void add_rows(const Add& p, Context& context) {
  context.parallel_for(p.rows, row_grain(p.columns), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      A* a = row<A>(p.a, r);
      const B* b = row<B>(p.b, r);
#pragma GCC ivdep
      for (int64_t c = 0; c < p.columns; ++c) a[c] = from_f32<A>(to_f32(a[c]) + to_f32(b[c]));
    }
  });
}

void add_cpu(const Add& p, Context& context) {
  const bool a32 = p.a.dtype == DType::f32, b32 = p.b.dtype == DType::f32;
  if (a32) return b32 ? add_rows<float, float>(p, context) : add_rows<float, bf16>(p, context);
  return b32 ? add_rows<bf16, float>(p, context) : add_rows<bf16, bf16>(p, context);
}

EDGEWISE_CPU_KERNEL(Add, add_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
