#include "core/norm_cpu.h"
#include "ops/rms_norm/op.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

template <class In, class Out, class Weight>
void rms_norm_rows(const RmsNorm& p, Context& context) {
  const int64_t width = row_width(p.x);
  context.parallel_for(row_count(p.x), row_grain(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      normalise_row(row<In>(p.x, r), p.weight.data<Weight>(), row<Out>(p.out, r), width, p.eps);
  });
}

void rms_norm_cpu(const RmsNorm& p, Context& context) {
  with_activation(p.x.dtype, [&](auto in) {
    with_activation(p.out.dtype, [&](auto out) {
      with_type(p.weight.dtype, [&](auto weight) {
        rms_norm_rows<decltype(in), decltype(out), decltype(weight)>(p, context);
      });
    });
  });
}

EDGEWISE_CPU_KERNEL(RmsNorm, rms_norm_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
