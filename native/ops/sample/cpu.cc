// Passes over the vocabulary are vectors of logits; only candidates that survive simple bounds are ever ordered, by
// selection: no full sort. Rows are independent and each is the work of one thread.
//   bytes per row: 4 V read two to four times, from the cache; floor = the first pass
#include "ops/sample/op.h"

#include <algorithm>
#include <cmath>

#include "core/simd.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

struct Candidate {
  float logit;
  int32_t id;
};

// The order of candidates: falling logit, ties by rising id.
struct Before {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
  }
};

struct Worker {
  int32_t* counts;        // [V] zeros
  float* weights;         // [V + kLanes]
  Candidate* candidates;  // [V]
  float* raw;             // [V]
};

constexpr int64_t kBlock = 256;  // logits per step of a pass: their sum is taken in f32, sums of blocks in f64

// Largest logit; NaN when there is a NaN, a +inf, or nothing but -inf.
float largest_logit(const float* y, int64_t n) {
  F32 top = splat(-INFINITY), poison = splat(0.0f);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F32 v = load(y + i);
    top = max(top, v);
    poison = fma(v, splat(0.0f), poison);  // NaN for a NaN and for infinities
  }
  float found = largest(top), doubt = sum(poison);
  for (; i < n; ++i) {
    found = y[i] > found ? y[i] : found;
    doubt += y[i] * 0.0f;
  }
  if (doubt != 0.0f)
    for (i = 0; i < n; ++i)
      if (std::isnan(y[i]) || y[i] == INFINITY) return NAN;
  return found == -INFINITY ? NAN : found;
}

float block_sum(const float* weights, int64_t n) {
  F32 part = splat(0.0f);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) part = part + load(weights + i);
  float rest = 0;
  for (; i < n; ++i) rest += weights[i];
  return sum(part) + rest;
}

// weights[i] = exp((y[i] - top) * inverse_temperature), 0 where y[i] < bound; returns their sum.
double weigh(const float* y, int64_t n, float top, float inverse_temperature, float bound, float* weights) {
  const F32 t = splat(top), inverse = splat(inverse_temperature);
  double total = 0;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t end = std::min(n, first + kBlock);
    int64_t i = first;
    for (; i + kLanes <= end; i += kLanes) store(weights + i, exp((load(y + i) - t) * inverse));
    if (i < end) store(weights + i, exp((load_partial(y + i, static_cast<int>(end - i)) - t) * inverse));
    for (i = first; bound > -INFINITY && i < end; ++i) weights[i] = y[i] < bound ? 0.0f : weights[i];
    total += block_sum(weights + first, end - first);
  }
  return total;
}

int64_t gather(const float* y, int64_t n, float bound, Candidate* out) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i)
    if (y[i] >= bound) out[count++] = {y[i], static_cast<int32_t>(i)};
  return count;
}

// Last of the fewest candidates, in order, whose weights reach `wanted`: halves the range that holds it.
Candidate crossing(Candidate* c, int64_t n, const float* weights, double wanted) {
  int64_t low = 0, high = n;
  double before = 0;
  while (high - low > 32) {
    const int64_t middle = low + (high - low) / 2;
    std::nth_element(c + low, c + middle, c + high, Before());
    double mass = 0;
    for (int64_t i = low; i < middle; ++i) mass += weights[c[i].id];
    if (before + mass >= wanted) {
      high = middle;
    } else {
      before += mass;
      low = middle;
    }
  }
  std::sort(c + low, c + high, Before());
  while (low + 1 < high && (before += weights[c[low].id]) < wanted) ++low;
  return c[low];
}

// First token by id whose running sum exceeds `target`; the last one with a weight when rounding leaves none.
int32_t walk(const float* weights, int64_t n, double target) {
  double before = 0;
  int32_t chosen = -1;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t end = std::min(n, first + kBlock);
    const double mass = block_sum(weights + first, end - first);
    if (before + mass > target || end == n) {
      double running = before;
      for (int64_t i = first; i < end; ++i) {
        if (weights[i] > 0) chosen = static_cast<int32_t>(i);
        if ((running += weights[i]) > target) return chosen;
      }
    } else if (mass > 0) {
      int64_t i = end - 1;
      while (weights[i] == 0) --i;
      chosen = static_cast<int32_t>(i);
    }
    before += mass;
  }
  return chosen;
}

int32_t draw(const SampleRow& row, const float* y, int64_t n, float top, const Worker& m) {
  if (!(row.temperature > 0)) return static_cast<int32_t>(std::find(y, y + n, top) - y);
  float bound = -INFINITY;
  if (row.min_p > 0) {
    const double exact = top + row.temperature * std::log(static_cast<double>(std::min(row.min_p, 1.0f)));
    bound = static_cast<float>(exact);
    if (bound < exact) bound = std::nextafter(bound, INFINITY);
    bound = std::min(bound, top);
  }
  Candidate last{-INFINITY, 0};  // the last candidate that is kept; -inf: all
  const bool cut_k = row.top_k > 0 && row.top_k < n, cut_p = row.top_p < 1;
  int64_t count = -1;
  if (cut_k) {
    count = gather(y, n, bound, m.candidates);
    if (count > row.top_k) {
      std::nth_element(m.candidates, m.candidates + row.top_k - 1, m.candidates + count, Before());
      count = row.top_k;
      last = m.candidates[count - 1];
      bound = last.logit;
    }
  }
  double total = weigh(y, n, top, std::min(1.0f / row.temperature, 1e30f), bound, m.weights);
  for (int64_t i = last.id + 1; last.logit > -INFINITY && i < n; ++i)
    if (y[i] == last.logit) {  // ties of the last one that is kept
      total -= m.weights[i];
      m.weights[i] = 0;
    }
  if (cut_p) {
    if (count < 0) {
      // All candidates below this weight together do not reach the mass that may be cut.
      const float least = static_cast<float>((1.0 - std::max(row.top_p, 0.0f)) * total / static_cast<double>(n) * 0.999);
      count = 0;
      for (int64_t i = 0; i < n; ++i)
        if (m.weights[i] >= least && m.weights[i] > 0) m.candidates[count++] = {y[i], static_cast<int32_t>(i)};
    }
    last = crossing(m.candidates, count, m.weights, row.top_p * total);
    total = 0;
    for (int64_t i = 0; i < n; ++i) {
      const bool kept = y[i] > last.logit || (y[i] == last.logit && i <= last.id);
      if (!kept) m.weights[i] = 0;
      total += m.weights[i];
    }
  }
  return walk(m.weights, n, sample_uniform(row.seed, row.position) * total);
}

// The most likely tokens, in order.
void top_candidates(const float* y, int64_t n, int32_t wanted, double log_total, SampleResult& result) {
  Candidate best[kMaxTopLogprobs];
  int32_t count = 0;
  for (int64_t i = 0; wanted > 0 && i < n; ++i) {
    if (count == wanted ? y[i] <= best[count - 1].logit : y[i] == -INFINITY) continue;
    int32_t at = count < wanted ? count++ : count - 1;
    for (; at > 0 && best[at - 1].logit < y[i]; --at) best[at] = best[at - 1];
    best[at] = {y[i], static_cast<int32_t>(i)};
  }
  result.top_count = count;
  for (int32_t i = 0; i < count; ++i) {
    result.top_ids[i] = best[i].id;
    result.top_logprobs[i] = static_cast<float>(best[i].logit - log_total);
  }
}

SampleResult sample_one(const SampleRow& row, float* y, int64_t n, const Worker& m) {
  SampleResult result;
  result.status = kSampleBadLogits;
  float top = largest_logit(y, n);
  if (std::isnan(top)) return result;
  double log_total = 0;
  const bool adjusted = row.bias_count > 0 || row.penalized();
  if (row.top_logprobs >= 0) {
    log_total = top + std::log(weigh(y, n, top, 1.0f, -INFINITY, m.weights));
    top_candidates(y, n, row.top_logprobs, log_total, result);
    if (adjusted) std::copy(y, y + n, m.raw);
  }
  if (adjusted) {
    adjust_logits(row, y, m.counts);
    top = largest_logit(y, n);
    if (std::isnan(top)) {
      result.top_count = 0;
      return result;
    }
  }
  result.status = kSampleOk;
  result.token = draw(row, y, n, top, m);
  if (row.top_logprobs >= 0) result.logprob = static_cast<float>((adjusted ? m.raw : y)[result.token] - log_total);
  return result;
}

void sample_cpu(const Sample& p, Context& context) {
  const int64_t n = p.vocab(), lanes = (n + 2 * kLanes) / kLanes * kLanes;
  // Per worker: counts, weights, candidates, raw logits.
  const size_t words = 5 * lanes;
  auto* memory = static_cast<int32_t*>(context.scratch(context.workers() * words * sizeof(int32_t)));
  for (int w = 0; w < context.workers(); ++w) std::fill_n(memory + w * words, lanes, 0);
  context.parallel_for(p.count(), 1, [&](int64_t begin, int64_t end, int worker) {
    int32_t* at = memory + worker * words;
    const Worker m{at, reinterpret_cast<float*>(at + lanes), reinterpret_cast<Candidate*>(at + 2 * lanes),
                   reinterpret_cast<float*>(at + 4 * lanes)};
    for (int64_t s = begin; s < end; ++s) {
      const SampleRow row = sample_row(p, s);
      SampleResult result;
      if (row.slot >= 0) result = sample_one(row, p.logits.data<float>() + s * p.logits.stride[0], n, m);
      write_sample(row, result, p.out.data<int32_t>() + s * kSampleOut);
    }
  });
}

EDGEWISE_CPU_KERNEL(Sample, sample_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
