#include <cmath>

#include "core/element.h"
#include "ops/rms_norm/op.h"

namespace edgewise {

static void rms_norm_reference(const RmsNorm& p, Context&) {
  const int64_t width = row_width(p.x);
  for (int64_t r = 0; r < row_count(p.x); ++r) {
    double sum = 0;
    for (int64_t c = 0; c < width; ++c) sum += static_cast<double>(get_in_row(p.x, r, c)) * get_in_row(p.x, r, c);
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(width) + static_cast<double>(p.eps));
    for (int64_t c = 0; c < width; ++c)
      set_in_row(p.out, r, c, static_cast<float>(get_in_row(p.x, r, c) * scale * get(p.weight, {c})));
  }
}

EDGEWISE_OP(rms_norm, RmsNorm, parse_rms_norm, rms_norm_reference,
            {{"x", ArgKind::in}, {"weight", ArgKind::in}, {"out", ArgKind::out}, {"eps", ArgKind::number}});

}  // namespace edgewise
