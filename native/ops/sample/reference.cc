#include "ops/sample/op.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace edgewise {
namespace {

// Token ids by falling logit, ties by id.
std::vector<int32_t> sorted_ids(const float* logits, int64_t vocab) {
  std::vector<int32_t> ids(vocab);
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [logits](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  return ids;
}

void log_probabilities(const float* logits, int64_t vocab, int32_t wanted, SampleResult& result, double& log_total) {
  const std::vector<int32_t> ids = sorted_ids(logits, vocab);
  const double largest = logits[ids[0]];
  double total = 0;
  for (int64_t i = 0; i < vocab; ++i) total += std::exp(logits[i] - largest);
  log_total = largest + std::log(total);
  for (int64_t i = 0; i < std::min<int64_t>(wanted, vocab) && logits[ids[i]] != -INFINITY; ++i) {
    result.top_ids[i] = ids[i];
    result.top_logprobs[i] = static_cast<float>(logits[ids[i]] - log_total);
    result.top_count = static_cast<int32_t>(i + 1);
  }
}

int32_t draw(const SampleRow& row, const float* logits, int64_t vocab) {
  std::vector<int32_t> kept = sorted_ids(logits, vocab);
  const double largest = logits[kept[0]];
  if (!(row.temperature > 0)) return kept[0];
  std::vector<double> weight(vocab);
  for (int64_t i = 0; i < vocab; ++i) weight[i] = std::exp((logits[i] - largest) / row.temperature);

  if (row.min_p > 0) {
    const double bound = largest + row.temperature * std::log(static_cast<double>(std::min(row.min_p, 1.0f)));
    while (kept.size() > 1 && logits[kept.back()] < bound) kept.pop_back();
  }
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < kept.size()) kept.resize(row.top_k);
  const auto mass = [&] { return std::accumulate(kept.begin(), kept.end(), 0.0, [&](double s, int32_t i) { return s + weight[i]; }); };
  if (row.top_p < 1) {
    const double wanted = row.top_p * mass();
    double sum = 0;
    size_t n = 0;
    do sum += weight[kept[n++]];
    while (sum < wanted && n < kept.size());
    kept.resize(n);
  }
  const double target = sample_uniform(row.seed, row.position) * mass();
  std::sort(kept.begin(), kept.end());
  double sum = 0;
  int32_t chosen = -1;
  for (int32_t i : kept) {
    if (weight[i] > 0) chosen = i;
    if ((sum += weight[i]) > target) break;
  }
  return chosen;
}

void sample_reference(const Sample& p, Context&) {
  std::vector<int32_t> counts(p.vocab());
  for (int64_t s = 0; s < p.count(); ++s) {
    const SampleRow row = sample_row(p, s);
    SampleResult result;
    if (row.slot >= 0) {
      float* logits = p.logits.data<float>() + s * p.logits.stride[0];
      double log_total = 0;
      const auto usable = [&] {
        bool any = false;
        for (int64_t i = 0; i < p.vocab(); ++i) {
          if (std::isnan(logits[i]) || logits[i] == INFINITY) return false;
          any |= logits[i] != -INFINITY;
        }
        return any;
      };
      result.status = usable() ? kSampleOk : kSampleBadLogits;
      if (result.status == kSampleOk) {
        if (row.top_logprobs >= 0) log_probabilities(logits, p.vocab(), row.top_logprobs, result, log_total);
        const std::vector<float> raw(logits, logits + p.vocab());
        adjust_logits(row, logits, counts.data());
        if (usable()) {
          result.token = draw(row, logits, p.vocab());
          if (row.top_logprobs >= 0) result.logprob = static_cast<float>(raw[result.token] - log_total);
        } else {
          result = {};
          result.status = kSampleBadLogits;
        }
      }
    }
    write_sample(row, result, p.out.data<int32_t>() + s * kSampleOut);
  }
}

}  // namespace

EDGEWISE_OP(sample, Sample, parse_sample, sample_reference,
            {{"logits", ArgKind::inout}, {"rows", ArgKind::in}, {"params", ArgKind::in}, {"bias_ids", ArgKind::in},
             {"bias_values", ArgKind::in}, {"history", ArgKind::inout}, {"out", ArgKind::out}});

}  // namespace edgewise
