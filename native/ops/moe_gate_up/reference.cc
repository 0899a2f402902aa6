#include "ops/moe_gate_up/op.h"
#include "ops/linear_common/reference.h"

namespace edgewise {
namespace {

void moe_gate_up_reference(const MoeGateUp& p, Context&) { gate_up_reference(p); }

EDGEWISE_OP(moe_gate_up, MoeGateUp, parse_moe_gate_up, moe_gate_up_reference,
            {{"x", ArgKind::in}, {"ids", ArgKind::in}, {"gate", ArgKind::in}, {"up", ArgKind::in}, {"out", ArgKind::out}});

}  // namespace
}  // namespace edgewise
