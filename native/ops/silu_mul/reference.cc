#include <cmath>

#include "core/element.h"
#include "ops/silu_mul/op.h"

namespace edgewise {

static void silu_mul_reference(const SiluMul& p, Context&) {
  for (int64_t r = 0; r < row_count(p.gate); ++r)
    for (int64_t c = 0; c < row_width(p.gate); ++c) {
      const float x = get_in_row(p.gate, r, c);
      set_in_row(p.out, r, c, x / (1.0f + std::exp(-x)) * get_in_row(p.up, r, c));
    }
}

EDGEWISE_OP(silu_mul, SiluMul, parse_silu_mul, silu_mul_reference,
            {{"gate", ArgKind::in}, {"up", ArgKind::in}, {"out", ArgKind::out}});

}  // namespace edgewise
