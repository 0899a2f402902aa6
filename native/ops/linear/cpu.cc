#include "ops/linear/op.h"
#include "ops/linear_common/kernels.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

void linear_cpu(const Linear& p, Context& context) { run_linear(p, context); }

EDGEWISE_CPU_KERNEL(Linear, linear_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
