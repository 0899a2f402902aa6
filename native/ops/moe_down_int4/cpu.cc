#include "ops/moe_down_int4/op.h"
#include "ops/linear_common/kernels.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

void moe_down_int4_cpu(const MoeDownInt4& p, Context& context) { run_down(p, context); }

EDGEWISE_CPU_KERNEL(MoeDownInt4, moe_down_int4_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
