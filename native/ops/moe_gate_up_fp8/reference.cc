#include "ops/moe_gate_up_fp8/op.h"
#include "ops/linear_common/reference.h"

namespace edgewise {
namespace {

void moe_gate_up_fp8_reference(const MoeGateUpFp8& p, Context&) { gate_up_reference(p); }

EDGEWISE_OP(moe_gate_up_fp8, MoeGateUpFp8, parse_moe_gate_up_fp8, moe_gate_up_fp8_reference,
            {{"x", ArgKind::in}, {"ids", ArgKind::in}, {"gate", ArgKind::in}, {"gate_scale", ArgKind::in},
             {"up", ArgKind::in}, {"up_scale", ArgKind::in}, {"out", ArgKind::out}, {"block_n", ArgKind::number},
             {"block_k", ArgKind::number}});

}  // namespace
}  // namespace edgewise
