#include "ops/moe_down_int4/op.h"
#include "ops/linear_common/reference.h"

namespace edgewise {
namespace {

void moe_down_int4_reference(const MoeDownInt4& p, Context&) { down_reference(p); }

EDGEWISE_OP(moe_down_int4, MoeDownInt4, parse_moe_down_int4, moe_down_int4_reference,
            {{"x", ArgKind::in}, {"ids", ArgKind::in}, {"weights", ArgKind::in}, {"down", ArgKind::in},
             {"down_scale", ArgKind::in}, {"down_zero", ArgKind::optional}, {"out", ArgKind::out},
             {"group", ArgKind::number}});

}  // namespace
}  // namespace edgewise
