#include "ops/linear_int4/op.h"
#include "ops/linear_common/kernels.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

void linear_int4_cpu(const LinearInt4& p, Context& context) { run_linear(p, context); }

EDGEWISE_CPU_KERNEL(LinearInt4, linear_int4_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
