#include "ops/linear_int4/op.h"
#include "ops/linear_common/reference.h"

namespace edgewise {
namespace {

void linear_int4_reference(const LinearInt4& p, Context&) { linear_reference(p); }

EDGEWISE_OP(linear_int4, LinearInt4, parse_linear_int4, linear_int4_reference,
            {{"x", ArgKind::in}, {"w", ArgKind::in}, {"scale", ArgKind::in}, {"zero", ArgKind::optional},
             {"bias", ArgKind::optional}, {"out", ArgKind::out}, {"group", ArgKind::number}});

}  // namespace
}  // namespace edgewise
