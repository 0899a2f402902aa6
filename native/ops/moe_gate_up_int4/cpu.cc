#include "ops/moe_gate_up_int4/op.h"
#include "ops/linear_common/kernels.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

void moe_gate_up_int4_cpu(const MoeGateUpInt4& p, Context& context) { run_gate_up(p, context); }

EDGEWISE_CPU_KERNEL(MoeGateUpInt4, moe_gate_up_int4_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
