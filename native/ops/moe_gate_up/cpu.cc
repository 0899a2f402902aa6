#include "ops/moe_gate_up/op.h"
#include "ops/linear_common/kernels.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

void moe_gate_up_cpu(const MoeGateUp& p, Context& context) { run_gate_up(p, context); }

EDGEWISE_CPU_KERNEL(MoeGateUp, moe_gate_up_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
