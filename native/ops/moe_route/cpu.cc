// One token at a time: scores in vectors, then one pass with a sorted list of the best k.
// A few microseconds at 256 experts; bound by the exponentials, 4 bytes read per expert.
#include "core/simd.h"
#include "ops/moe_route/op.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

// Keeps `count` (at most k) best values seen, by falling value; an equal later one goes behind.
struct Best {
  float* values;
  int32_t* ids;
  int64_t k, count;

  void offer(float value, int32_t id) {
    if (count == k && !(value > values[k - 1])) return;
    int64_t at = count < k ? count++ : k - 1;
    for (; at > 0 && value > values[at - 1]; --at) {
      values[at] = values[at - 1];
      ids[at] = ids[at - 1];
    }
    values[at] = value;
    ids[at] = id;
  }
};

// Writes E scores and returns whether a logit is NaN (then all scores are 0).
bool score(const MoeRoute& p, const float* logits, int64_t experts, float* scores) {
  float highest = -__builtin_inff();
  bool nan = false;
  for (int64_t e = 0; e < experts; ++e) {
    nan |= logits[e] != logits[e];
    highest = logits[e] > highest ? logits[e] : highest;
  }
  const F32 one = splat(1.0f), top = splat(highest);
  float total = 0;
  for (int64_t e = 0; e < experts; e += kLanes) {
    const int n = static_cast<int>(experts - e < kLanes ? experts - e : kLanes);
    const F32 logit = n == kLanes ? load(logits + e) : load_partial(logits + e, n);
    const F32 value = p.sigmoid ? one / (one + exp(splat(0.0f) - logit)) : exp(logit - top);
    store_partial(scores + e, value, n);
    for (int i = 0; i < n; ++i) total += scores[e + i];
  }
  for (int64_t e = 0; e < experts; ++e) scores[e] = nan ? 0.0f : p.sigmoid ? scores[e] : scores[e] / total;
  return nan;
}

void route(const MoeRoute& p, int64_t t, float* scores, float* choice, float* best_values, int32_t* best_groups) {
  const int64_t experts = p.logits.shape[1], k = p.ids.shape[1], size = experts / p.groups;
  const bool nan = score(p, p.logits.data<float>() + t * p.logits.stride[0], experts, scores);
  const float* bias = p.bias.storage ? p.bias.data<float>() : nullptr;
  for (int64_t e = 0; e < experts; ++e) choice[e] = bias ? scores[e] + bias[e] : scores[e];

  int32_t* ids = p.ids.data<int32_t>() + t * k;
  float* weights = p.weights.data<float>() + t * k;
  Best chosen{best_values, ids, k, 0};
  if (p.top_groups < p.groups) {
    Best groups{best_values, best_groups, p.top_groups, 0};
    for (int64_t g = 0; g < p.groups; ++g) {
      float two[2];
      int32_t members[2];
      Best best{two, members, 2, 0};
      for (int64_t i = 0; i < size; ++i) best.offer(choice[g * size + i], static_cast<int32_t>(i));
      groups.offer(two[0] + two[1], static_cast<int32_t>(g));
    }
    // By rising group, so that among equal choices the lower expert index comes first.
    for (int64_t g = 0; g < p.groups; ++g) {
      bool kept = false;
      for (int64_t i = 0; i < p.top_groups; ++i) kept |= best_groups[i] == g;
      for (int64_t i = 0; kept && i < size; ++i) chosen.offer(choice[g * size + i], static_cast<int32_t>(g * size + i));
    }
  } else {
    for (int64_t e = 0; e < experts; ++e) chosen.offer(choice[e], static_cast<int32_t>(e));
  }

  float sum = 0;
  for (int64_t j = 0; j < k; ++j) sum += scores[ids[j]];
  if (p.sigmoid) sum += 1e-20f;
  for (int64_t j = 0; j < k; ++j) {
    const float weight = scores[ids[j]] / (p.normalize ? sum : 1.0f) * p.scale;
    weights[j] = nan ? __builtin_nanf("") : weight;
  }
}

void moe_route_cpu(const MoeRoute& p, Context& context) {
  const int64_t experts = p.logits.shape[1];
  const size_t floats = static_cast<size_t>(3 * experts);
  const size_t bytes = (floats * sizeof(float) + static_cast<size_t>(p.groups) * sizeof(int32_t) + 63) / 64 * 64;
  char* scratch = static_cast<char*>(context.scratch(bytes * static_cast<size_t>(context.workers())));
  const int64_t grain = 1 + 16384 / (experts + 1);
  context.parallel_for(p.logits.shape[0], grain, [&](int64_t begin, int64_t end, int worker) {
    float* mine = reinterpret_cast<float*>(scratch + bytes * static_cast<size_t>(worker));
    int32_t* groups = reinterpret_cast<int32_t*>(mine + floats);
    for (int64_t t = begin; t < end; ++t) route(p, t, mine, mine + experts, mine + 2 * experts, groups);
  });
}

EDGEWISE_CPU_KERNEL(MoeRoute, moe_route_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
