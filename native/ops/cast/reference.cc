#include "core/element.h"
#include "ops/cast/op.h"

namespace edgewise {

static void cast_reference(const Cast& p, Context&) {
  for (int64_t r = 0; r < row_count(p.x); ++r)
    for (int64_t c = 0; c < row_width(p.x); ++c) set_in_row(p.out, r, c, get_in_row(p.x, r, c));
}

EDGEWISE_OP(cast, Cast, parse_cast, cast_reference, {{"x", ArgKind::in}, {"out", ArgKind::out}});

}  // namespace edgewise
