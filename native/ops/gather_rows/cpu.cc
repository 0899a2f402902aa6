#include "core/row_lookup_cpu.h"
#include "ops/gather_rows/op.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

void gather_rows_cpu(const GatherRows& p, Context& context) { row_lookup_cpu(p, context); }

EDGEWISE_CPU_KERNEL(GatherRows, gather_rows_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
