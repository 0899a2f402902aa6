#include "core/element.h"
#include "ops/add/op.h"

namespace edgewise {

static void add_reference(const Add& p, Context&) {
  for (int64_t r = 0; r < p.rows; ++r)
    for (int64_t c = 0; c < p.columns; ++c) set(p.a, {r, c}, get(p.a, {r, c}) + get(p.b, {r, c}));
}

EDGEWISE_OP(add, Add, parse_add, add_reference, {{"a", ArgKind::inout}, {"b", ArgKind::in}});

}  // namespace edgewise
