#include "ops/gather_rows/op.h"

namespace edgewise {

static void gather_rows_reference(const GatherRows& p, Context& context) { row_lookup_reference(p, context); }

EDGEWISE_OP(gather_rows, GatherRows, parse_gather_rows, gather_rows_reference,
            {{"x", ArgKind::in}, {"index", ArgKind::in}, {"out", ArgKind::out}});

}  // namespace edgewise
