#include "core/fast_math.h"
#include "core/float.h"
#include "core/rows.h"
#include "ops/silu_mul/op.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

template <class In, class Out>
void silu_mul_rows(const SiluMul& p, Context& context) {
  const int64_t width = row_width(p.gate);
  context.parallel_for(row_count(p.gate), row_grain(width), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const In* gate = row<In>(p.gate, r);
      const In* up = row<In>(p.up, r);
      Out* out = row<Out>(p.out, r);
#pragma GCC ivdep
      for (int64_t c = 0; c < width; ++c) {
        const float x = to_f32(gate[c]);
        out[c] = from_f32<Out>(x / (1.0f + fast_exp(-x)) * to_f32(up[c]));
      }
    }
  });
}

template <class In>
void silu_mul_from(const SiluMul& p, Context& context) {
  p.out.dtype == DType::f32 ? silu_mul_rows<In, float>(p, context) : silu_mul_rows<In, bf16>(p, context);
}

void silu_mul_cpu(const SiluMul& p, Context& context) {
  p.gate.dtype == DType::f32 ? silu_mul_from<float>(p, context) : silu_mul_from<bf16>(p, context);
}

EDGEWISE_CPU_KERNEL(SiluMul, silu_mul_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
