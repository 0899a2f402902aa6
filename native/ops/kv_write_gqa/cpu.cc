#include "ops/kv_write_gqa/op.h"

#include "core/kv_write.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

template <class Act>
void run(const KvWriteGqa& p, Context& context) {
  const int64_t heads = p.k.shape[1], dim = p.k.shape[2];
  write_tokens(p.pool, p.write_slots, p.stats, p.k_scale, p.v_scale, context, [&](int64_t t, float* out) {
    for (int64_t h = 0; h < heads; ++h) {
      widen_elements(p.k.data<Act>() + t * p.k.stride[0] + h * p.k.stride[1], dim, out + h * dim);
      widen_elements(p.v.data<Act>() + t * p.v.stride[0] + h * p.v.stride[1], dim, out + (heads + h) * dim);
    }
  });
}

void kv_write_gqa_cpu(const KvWriteGqa& p, Context& context) {
  if (p.k.dtype == DType::f32) run<float>(p, context);
  else run<bf16>(p, context);
}

EDGEWISE_CPU_KERNEL(KvWriteGqa, kv_write_gqa_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
