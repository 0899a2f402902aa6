#include "core/sampling.h"

#include <cstring>
#include <stdexcept>
#include <string>

namespace edgewise {

namespace {

int32_t checked(int64_t value, int64_t low, int64_t high, const char* what) {
  if (value < low || value > high) throw std::runtime_error(std::string(what) + " " + std::to_string(value) + " is out of range");
  return static_cast<int32_t>(value);
}

}  // namespace

SampleRow read_sample_row(const int32_t* row, const Tensor& params, const Tensor& bias_ids, const Tensor& bias_values,
                          const Tensor& history, int64_t vocab) {
  SampleRow r;
  r.slot = checked(row[0], -1, params.shape[0] - 1, "slot");
  r.epoch = row[2];
  if (r.slot < 0) return r;
  r.position = checked(row[1], 0, history.shape[1] - 1, "position");
  r.prompt_length = checked(row[3], 0, r.position, "prompt length");
  const int32_t* p = params.data<int32_t>() + r.slot * kSampleParams;
  read_sample_params(p, r);
  checked(r.top_logprobs, -1, kMaxTopLogprobs, "top_logprobs");
  checked(r.bias_count, 0, bias_ids.shape[1], "bias_count");
  r.bias_ids = bias_ids.data<int32_t>() + r.slot * bias_ids.stride[0];
  r.bias_values = bias_values.data<float>() + r.slot * bias_values.stride[0];
  r.history = history.data<int32_t>() + r.slot * history.stride[0];
  for (int32_t i = 0; i < r.bias_count; ++i) checked(r.bias_ids[i], 0, vocab - 1, "biased token");
  for (int32_t i = 0; r.penalized() && i < r.position; ++i) checked(r.history[i], 0, vocab - 1, "token of the history");
  return r;
}

void adjust_logits(const SampleRow& row, float* logits, int32_t* counts) {
  for (int32_t i = 0; i < row.bias_count; ++i) {
    float& y = logits[row.bias_ids[i]];
    y = biased_logit(y, row.bias_values[i]);
  }
  if (!row.penalized()) return;
  // Occurrences in the output, plus one for a token that occurs at all; each token is changed where it is met first.
  for (int32_t i = 0; i < row.position; ++i) {
    int32_t& n = counts[row.history[i]];
    n += (n == 0) + (i >= row.prompt_length);
  }
  for (int32_t i = 0; i < row.position; ++i) {
    int32_t& n = counts[row.history[i]];
    if (n == 0) continue;
    float& y = logits[row.history[i]];
    y = penalized_logit(row, y, n - 1);
    n = 0;
  }
}

void write_sample(const SampleRow& row, const SampleResult& result, int32_t* out) {
  std::memset(out, 0, kSampleOut * sizeof(int32_t));
  out[0] = row.slot;
  out[1] = row.position;
  out[2] = result.token;
  out[3] = row.epoch;
  out[4] = std::bit_cast<int32_t>(result.logprob);
  out[5] = result.top_count;
  out[6] = result.status;
  for (int32_t i = 0; i < result.top_count; ++i) {
    out[8 + 2 * i] = result.top_ids[i];
    out[9 + 2 * i] = std::bit_cast<int32_t>(result.top_logprobs[i]);
  }
  if (result.status == kSampleOk) row.history[row.position] = result.token;
}

}  // namespace edgewise
