#include "ops/head_linear/op.h"
#include "ops/linear_common/reference.h"

namespace edgewise {
namespace {

void head_linear_reference(const HeadLinear& p, Context&) {
  for (int64_t t = 0; t < p.x.shape[0]; ++t)
    for (int64_t h = 0; h < p.w.experts; ++h)
      for (int64_t n = 0; n < p.w.n; ++n)
        set(p.out, {t, h, n},
              static_cast<float>(dot(p.x, t * p.x.stride[0] + h * p.x.stride[1], view_of(p.w, h), n)));
}

EDGEWISE_OP(head_linear, HeadLinear, parse_head_linear, head_linear_reference,
            {{"x", ArgKind::in}, {"w", ArgKind::in}, {"out", ArgKind::out}});

}  // namespace
}  // namespace edgewise
