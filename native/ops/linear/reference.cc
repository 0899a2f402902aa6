#include "ops/linear/op.h"
#include "ops/linear_common/reference.h"

namespace edgewise {
namespace {

void linear_reference(const Linear& p, Context&) { linear_reference(p); }

EDGEWISE_OP(linear, Linear, parse_linear, linear_reference,
            {{"x", ArgKind::in}, {"w", ArgKind::in}, {"bias", ArgKind::optional}, {"out", ArgKind::out}});

}  // namespace
}  // namespace edgewise
