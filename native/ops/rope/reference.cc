#include <cmath>

#include "core/element.h"
#include "ops/rope/op.h"

namespace edgewise {

static void rope_reference(const Rope& p, Context&) {
  const int64_t half = p.x.shape[2] / 2;
  for (int64_t t = 0; t < p.x.shape[0]; ++t)
    for (int64_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(get_int(p.positions, {t})) * get(p.inv_freq, {i});
      const float cosine = static_cast<float>(std::cos(static_cast<double>(angle))) * p.scale;
      const float sine = static_cast<float>(std::sin(static_cast<double>(angle))) * p.scale;
      const int64_t first = p.interleaved ? 2 * i : i;
      const int64_t second = p.interleaved ? 2 * i + 1 : i + half;
      for (int64_t h = 0; h < p.x.shape[1]; ++h) {
        const float a = get(p.x, {t, h, first}), b = get(p.x, {t, h, second});
        set(p.x, {t, h, first}, a * cosine - b * sine);
        set(p.x, {t, h, second}, b * cosine + a * sine);
      }
    }
}

EDGEWISE_OP(rope, Rope, parse_rope, rope_reference,
            {{"x", ArgKind::inout},
             {"positions", ArgKind::in},
             {"inv_freq", ArgKind::in},
             {"interleaved", ArgKind::number},
             {"scale", ArgKind::number}});

}  // namespace edgewise
