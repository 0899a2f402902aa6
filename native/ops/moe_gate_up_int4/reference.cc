#include "ops/moe_gate_up_int4/op.h"
#include "ops/linear_common/reference.h"

namespace edgewise {
namespace {

void moe_gate_up_int4_reference(const MoeGateUpInt4& p, Context&) { gate_up_reference(p); }

EDGEWISE_OP(moe_gate_up_int4, MoeGateUpInt4, parse_moe_gate_up_int4, moe_gate_up_int4_reference,
            {{"x", ArgKind::in}, {"ids", ArgKind::in}, {"gate", ArgKind::in}, {"gate_scale", ArgKind::in},
             {"gate_zero", ArgKind::optional}, {"up", ArgKind::in}, {"up_scale", ArgKind::in},
             {"up_zero", ArgKind::optional}, {"out", ArgKind::out}, {"group", ArgKind::number}});

}  // namespace
}  // namespace edgewise
