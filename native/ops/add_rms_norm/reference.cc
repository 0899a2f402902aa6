#include <cmath>

#include "core/element.h"
#include "ops/add_rms_norm/op.h"

namespace edgewise {

static void add_rms_norm_reference(const AddRmsNorm& p, Context&) {
  const int64_t rows = p.residual.shape[0], width = p.residual.shape[1];
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t c = 0; c < width; ++c) {
      const float v = get(p.residual, {r, c}) + get(p.x, {r, c});
      set(p.residual, {r, c}, v);
      sum += static_cast<double>(v) * v;
    }
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(width) + static_cast<double>(p.eps));
    for (int64_t c = 0; c < width; ++c)
      set(p.out, {r, c}, static_cast<float>(get(p.residual, {r, c}) * scale * get(p.weight, {c})));
  }
}

EDGEWISE_OP(add_rms_norm, AddRmsNorm, parse_add_rms_norm, add_rms_norm_reference,
            {{"residual", ArgKind::inout},
             {"x", ArgKind::in},
             {"weight", ArgKind::in},
             {"out", ArgKind::out},
             {"eps", ArgKind::number}});

}  // namespace edgewise
