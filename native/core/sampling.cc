#include "core/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

namespace edgewise {

namespace {

int32_t checked(int64_t value, int64_t low, int64_t high, const char* what) {
  if (value < low || value > high) throw std::runtime_error(std::string(what) + " " + std::to_string(value) + " is out of range");
  return static_cast<int32_t>(value);
}

// Bias and penalties of any size keep a logit finite.
float finite(float y) { return std::clamp(y, -3e38f, 3e38f); }

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
  const auto real = [p](int i) { return std::bit_cast<float>(p[i]); };
  r.temperature = std::min(real(0), 1e30f);
  r.top_k = p[1];
  r.top_p = real(2);
  r.min_p = real(3);
  r.repetition = real(4);
  r.presence = real(5);
  r.frequency = real(6);
  r.seed[0] = static_cast<uint32_t>(p[7]);
  r.seed[1] = static_cast<uint32_t>(p[8]);
  r.top_logprobs = checked(p[9], -1, kMaxTopLogprobs, "top_logprobs");
  r.bias_count = checked(p[10], 0, bias_ids.shape[1], "bias_count");
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
    if (y != -INFINITY) y = finite(y + row.bias_values[i]);
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
    const int32_t in_output = n - 1;
    n = 0;
    if (y == -INFINITY) continue;
    y = finite(y > 0 ? y / row.repetition : y * row.repetition);
    if (in_output > 0) y = finite(y - row.frequency * static_cast<float>(in_output) - row.presence);
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

double sample_uniform(const uint32_t seed[2], int32_t position) {
  uint32_t c[4] = {static_cast<uint32_t>(position), 0, 0, 0};
  uint32_t k[2] = {seed[0], seed[1]};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    std::copy(next, next + 4, c);
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  const uint64_t bits = (uint64_t{c[0]} << 32 | c[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace edgewise
