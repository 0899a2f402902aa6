#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/element.h"
#include "ops/moe_route/op.h"

namespace edgewise {
namespace {

// Scores of one token, rounded to f32 as the models compute them.
std::vector<float> scores_of(const MoeRoute& p, int64_t t) {
  const int64_t experts = p.logits.shape[1];
  std::vector<float> scores(experts);
  double highest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t e = 0; e < experts; ++e) highest = std::max<double>(highest, get(p.logits, {t, e}));
  for (int64_t e = 0; e < experts; ++e) sum += std::exp(get(p.logits, {t, e}) - highest);
  for (int64_t e = 0; e < experts; ++e) {
    const double logit = get(p.logits, {t, e});
    scores[e] = static_cast<float>(p.sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit - highest) / sum);
  }
  return scores;
}

// Indices by falling value, equal ones by rising index.
std::vector<int64_t> ranked(const std::vector<float>& values) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return values[a] > values[b]; });
  return order;
}

void moe_route_reference(const MoeRoute& p, Context&) {
  const int64_t experts = p.logits.shape[1], k = p.ids.shape[1], size = experts / p.groups;
  for (int64_t t = 0; t < p.logits.shape[0]; ++t) {
    bool nan = false;
    for (int64_t e = 0; e < experts; ++e) nan = nan || std::isnan(get(p.logits, {t, e}));
    const std::vector<float> scores = nan ? std::vector<float>(experts, 0.0f) : scores_of(p, t);
    std::vector<float> choice = scores;
    if (p.bias.storage)
      for (int64_t e = 0; e < experts; ++e) choice[e] += get(p.bias, {e});

    std::vector<bool> kept(experts, true);
    if (p.top_groups < p.groups) {
      std::vector<float> group_scores(p.groups);
      for (int64_t g = 0; g < p.groups; ++g) {
        std::vector<float> members(choice.begin() + g * size, choice.begin() + (g + 1) * size);
        std::sort(members.rbegin(), members.rend());
        group_scores[g] = members[0] + members[1];
      }
      const auto order = ranked(group_scores);
      for (int64_t r = p.top_groups; r < p.groups; ++r)
        for (int64_t i = 0; i < size; ++i) kept[order[r] * size + i] = false;
    }

    std::vector<int64_t> chosen;
    for (int64_t e : ranked(choice))
      if (kept[e] && static_cast<int64_t>(chosen.size()) < k) chosen.push_back(e);
    float sum = 0;
    for (int64_t e : chosen) sum += scores[e];
    if (p.sigmoid) sum += 1e-20f;
    for (int64_t j = 0; j < k; ++j) {
      const float weight = scores[chosen[j]] / (p.normalize ? sum : 1.0f) * p.scale;
      set_int(p.ids, {t, j}, static_cast<int32_t>(chosen[j]));
      set(p.weights, {t, j}, nan ? std::numeric_limits<float>::quiet_NaN() : weight);
    }
  }
}

EDGEWISE_OP(moe_route, MoeRoute, parse_moe_route, moe_route_reference,
            {{"logits", ArgKind::in}, {"bias", ArgKind::optional}, {"ids", ArgKind::out}, {"weights", ArgKind::out},
             {"scoring", ArgKind::number}, {"groups", ArgKind::number}, {"top_groups", ArgKind::number},
             {"normalize", ArgKind::number}, {"scale", ArgKind::number}});

}  // namespace
}  // namespace edgewise
