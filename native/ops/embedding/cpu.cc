#include "core/row_lookup_cpu.h"
#include "ops/embedding/op.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

void embedding_cpu(const Embedding& p, Context& context) { row_lookup_cpu(p, context); }

EDGEWISE_CPU_KERNEL(Embedding, embedding_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
