#include "ops/moe_gate_up_fp8/op.h"
#include "ops/linear_common/kernels.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

void moe_gate_up_fp8_cpu(const MoeGateUpFp8& p, Context& context) { run_gate_up(p, context); }

EDGEWISE_CPU_KERNEL(MoeGateUpFp8, moe_gate_up_fp8_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
