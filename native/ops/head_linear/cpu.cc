#include "ops/head_linear/op.h"
#include "ops/linear_common/kernels.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

void head_linear_cpu(const HeadLinear& p, Context& context) { run_head_linear(p, context); }

EDGEWISE_CPU_KERNEL(HeadLinear, head_linear_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
