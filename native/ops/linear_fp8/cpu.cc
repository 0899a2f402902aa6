#include "ops/linear_fp8/op.h"
#include "ops/linear_common/kernels.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

void linear_fp8_cpu(const LinearFp8& p, Context& context) { run_linear(p, context); }

EDGEWISE_CPU_KERNEL(LinearFp8, linear_fp8_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
