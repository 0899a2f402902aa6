#include "ops/moe_down/op.h"
#include "ops/linear_common/reference.h"

namespace edgewise {
namespace {

void moe_down_reference(const MoeDown& p, Context&) { down_reference(p); }

EDGEWISE_OP(moe_down, MoeDown, parse_moe_down, moe_down_reference,
            {{"x", ArgKind::in}, {"ids", ArgKind::in}, {"weights", ArgKind::in}, {"down", ArgKind::in},
             {"out", ArgKind::out}});

}  // namespace
}  // namespace edgewise
