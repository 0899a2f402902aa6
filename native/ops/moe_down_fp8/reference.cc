#include "ops/moe_down_fp8/op.h"
#include "ops/linear_common/reference.h"

namespace edgewise {
namespace {

void moe_down_fp8_reference(const MoeDownFp8& p, Context&) { down_reference(p); }

EDGEWISE_OP(moe_down_fp8, MoeDownFp8, parse_moe_down_fp8, moe_down_fp8_reference,
            {{"x", ArgKind::in}, {"ids", ArgKind::in}, {"weights", ArgKind::in}, {"down", ArgKind::in},
             {"down_scale", ArgKind::in}, {"out", ArgKind::out}, {"block_n", ArgKind::number},
             {"block_k", ArgKind::number}});

}  // namespace
}  // namespace edgewise
