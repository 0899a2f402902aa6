#include "ops/moe_down_fp8/op.h"
#include "ops/linear_common/kernels.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

void moe_down_fp8_cpu(const MoeDownFp8& p, Context& context) { run_down(p, context); }

EDGEWISE_CPU_KERNEL(MoeDownFp8, moe_down_fp8_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
