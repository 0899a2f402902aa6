#include "ops/moe_down/op.h"
#include "ops/linear_common/kernels.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

void moe_down_cpu(const MoeDown& p, Context& context) { run_down(p, context); }

EDGEWISE_CPU_KERNEL(MoeDown, moe_down_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
