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

// Candidates by the upper bits of their weight, eight bins per octave: what lies in higher bins comes first.
constexpr int kBins = 1024;

int bin_of(float weight) { return static_cast<int>(__builtin_bit_cast(uint32_t, weight) >> 20); }

struct Histogram {
  double mass[kBins] = {};
  int32_t count[kBins] = {};

  Histogram(const float* weights, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const int b = bin_of(weights[i]);
      mass[b] += weights[i];
      count[b] += weights[i] > 0;
    }
  }
};

// Candidates with a weight in bins [low, high].
int64_t gather(const float* y, const float* weights, int64_t n, int low, int high, Candidate* out) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int b = bin_of(weights[i]);
    if (b >= low && b <= high && weights[i] > 0) out[count++] = {y[i], static_cast<int32_t>(i)};
  }
  return count;
}

// Drops what comes after `last`; returns the mass that stays.
double keep_until(const Candidate& last, const float* y, int64_t n, float* weights) {
  double total = 0;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t end = std::min(n, first + kBlock);
    for (int64_t i = first; i < end; ++i) {
      const bool kept = y[i] > last.logit || (y[i] == last.logit && i <= last.id);
      weights[i] = kept ? weights[i] : 0.0f;
    }
    total += block_sum(weights + first, end - first);
  }
  return total;
}

// Keeps the first k candidates; they lie in `c` afterwards. Returns how many there are.
int64_t cut_to_k(const float* y, int64_t n, int32_t k, float* weights, Candidate* c, double& total) {
  const Histogram histogram(weights, n);
  int bin = kBins - 1;
  for (int64_t above = histogram.count[bin]; above < k && bin > 0; above += histogram.count[bin]) --bin;
  const int64_t count = gather(y, weights, n, bin, kBins - 1, c);
  if (count < k) return count;  // there are no more
  std::nth_element(c, c + k - 1, c + count, Before());
  total = keep_until(c[k - 1], y, n, weights);
  return k;
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

// The same among all tokens: only the bin of weights that holds it is looked at closely.
Candidate crossing_of_all(const float* y, int64_t n, const float* weights, Candidate* c, double wanted) {
  const Histogram histogram(weights, n);
  double before = 0;
  int bin = -1;
  for (int b = kBins - 1; b >= 0; --b) {
    if (histogram.count[b] == 0) continue;
    if (bin >= 0) before += histogram.mass[bin];
    bin = b;
    if (before + histogram.mass[b] >= wanted) break;
  }
  const int64_t count = gather(y, weights, n, bin, bin, c);
  return crossing(c, count, weights, wanted - before);
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
  const float bound = min_p_bound(row, top);
  double total = weigh(y, n, top, std::min(1.0f / row.temperature, 1e30f), bound, m.weights);
  const bool cut_k = row.top_k > 0 && row.top_k < n;
  const int64_t count = cut_k ? cut_to_k(y, n, row.top_k, m.weights, m.candidates, total) : -1;
  if (row.top_p < 1) {
    const double wanted = row.top_p * total;
    const Candidate last = cut_k ? crossing(m.candidates, count, m.weights, wanted)
                                 : crossing_of_all(y, n, m.weights, m.candidates, wanted);
    total = keep_until(last, y, n, m.weights);
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
