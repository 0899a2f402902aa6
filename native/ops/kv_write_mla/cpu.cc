#include "ops/kv_write_mla/op.h"

#include "core/kv_write.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

template <class Act>
void run(const KvWriteMla& p, Context& context) {
  write_tokens(p.pool, p.write_slots, p.stats, p.scale, p.scale, context, [&](int64_t t, float* out) {
    widen_elements(p.latent.data<Act>() + t * p.latent.stride[0], p.latent.shape[1], out);
  });
}

void kv_write_mla_cpu(const KvWriteMla& p, Context& context) {
  if (p.latent.dtype == DType::f32) run<float>(p, context);
  else run<bf16>(p, context);
}

EDGEWISE_CPU_KERNEL(KvWriteMla, kv_write_mla_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
