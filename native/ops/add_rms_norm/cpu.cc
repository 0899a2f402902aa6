#include "core/norm_cpu.h"
#include "ops/add_rms_norm/op.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

template <class In, class Out, class Weight>
void add_rms_norm_rows(const AddRmsNorm& p, Context& context) {
  const int64_t width = p.residual.shape[1];
  context.parallel_for(p.residual.shape[0], row_grain(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float* residual = row<float>(p.residual, r);
      const In* x = row<In>(p.x, r);
#pragma GCC ivdep
      for (int64_t c = 0; c < width; ++c) residual[c] += to_f32(x[c]);
      normalise_row(residual, p.weight.data<Weight>(), row<Out>(p.out, r), width, p.eps);
    }
  });
}

void add_rms_norm_cpu(const AddRmsNorm& p, Context& context) {
  with_activation(p.x.dtype, [&](auto in) {
    with_activation(p.out.dtype, [&](auto out) {
      with_type(p.weight.dtype, [&](auto weight) {
        add_rms_norm_rows<decltype(in), decltype(out), decltype(weight)>(p, context);
      });
    });
  });
}

EDGEWISE_CPU_KERNEL(AddRmsNorm, add_rms_norm_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
