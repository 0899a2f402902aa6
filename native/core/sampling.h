// One sampled row: its parameters, the uniform number it draws, the changes to its logits, and the record it leaves.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "core/tensor.h"

// What the CUDA kernel computes with too. Such functions are static: none may be shared with an object of AVX code.
#ifdef __CUDACC__
#define EDGEWISE_HOST_DEVICE __host__ __device__
#else
#define EDGEWISE_HOST_DEVICE
#endif

namespace edgewise {

constexpr int kSampleRow = 4, kSampleParams = 16, kSampleOut = 48, kMaxTopLogprobs = 20;

enum SampleStatus : int32_t { kSampleVoid = 0, kSampleOk = 1, kSampleBadLogits = 2 };

struct SampleRow {
  int32_t slot = -1;  // -1: void, nothing else is set
  int32_t position = 0, epoch = 0, prompt_length = 0;
  float temperature = 0;  // not above 0: greedy
  int32_t top_k = 0;      // 0: off
  float top_p = 1;        // 1: off
  float min_p = 0;        // 0: off
  float repetition = 1, presence = 0, frequency = 0;
  uint32_t seed[2] = {};
  int32_t top_logprobs = -1;  // -1: no log probabilities
  int32_t bias_count = 0;
  const int32_t* bias_ids = nullptr;
  const float* bias_values = nullptr;
  int32_t* history = nullptr;

  EDGEWISE_HOST_DEVICE bool penalized() const { return repetition != 1 || presence != 0 || frequency != 0; }
};

struct SampleResult {
  int32_t token = -1;
  SampleStatus status = kSampleVoid;
  float logprob = 0;
  int32_t top_count = 0;
  int32_t top_ids[kMaxTopLogprobs];
  float top_logprobs[kMaxTopLogprobs];
};

// Fills in a slot's parameters, i32 [kSampleParams], unchecked.
EDGEWISE_HOST_DEVICE static inline void read_sample_params(const int32_t* p, SampleRow& row) {
  const auto real = [p](int i) { return std::bit_cast<float>(p[i]); };
  row.temperature = std::min(real(0), 1e30f);
  row.top_k = p[1];
  row.top_p = real(2);
  row.min_p = real(3);
  row.repetition = real(4);
  row.presence = real(5);
  row.frequency = real(6);
  row.seed[0] = static_cast<uint32_t>(p[7]);
  row.seed[1] = static_cast<uint32_t>(p[8]);
  row.top_logprobs = p[9];
  row.bias_count = p[10];
}

// Reads a row and its slot's parameters; throws when an index is out of range.
SampleRow read_sample_row(const int32_t* row, const Tensor& params, const Tensor& bias_ids, const Tensor& bias_values,
                          const Tensor& history, int64_t vocab);

// Applies bias and penalties; results stay finite, and -inf stays -inf. `counts` is i32[vocab], zeros before and after.
void adjust_logits(const SampleRow& row, float* logits, int32_t* counts);

// Writes the 48 words of the record, and the token into the history.
void write_sample(const SampleRow& row, const SampleResult& result, int32_t* out);

// Bias and penalties of any size keep a logit finite, and -inf stays -inf.
EDGEWISE_HOST_DEVICE static inline float finite_logit(float y) { return std::clamp(y, -3e38f, 3e38f); }

EDGEWISE_HOST_DEVICE static inline float biased_logit(float y, float bias) {
  return y == -INFINITY ? y : finite_logit(y + bias);
}

// Of a token of the history that occurs `in_output` times in the output.
EDGEWISE_HOST_DEVICE static inline float penalized_logit(const SampleRow& row, float y, int32_t in_output) {
  if (y == -INFINITY) return y;
  y = finite_logit(y > 0 ? y / row.repetition : y * row.repetition);
  return in_output > 0 ? finite_logit(y - row.frequency * static_cast<float>(in_output) - row.presence) : y;
}

// The lowest logit that min-p keeps; -inf without min-p.
EDGEWISE_HOST_DEVICE static inline float min_p_bound(const SampleRow& row, float top) {
  if (!(row.min_p > 0)) return -INFINITY;
  const double exact = top + row.temperature * std::log(static_cast<double>(std::min(row.min_p, 1.0f)));
  float bound = static_cast<float>(exact);
  if (bound < exact) bound = nextafterf(bound, INFINITY);
  return std::min(bound, top);
}

// Uniform in [0, 1) with 53 bits: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11)
// with the seed as key and {position, 0, 0, 0} as counter.
EDGEWISE_HOST_DEVICE static inline double sample_uniform(const uint32_t seed[2], int32_t position) {
  uint32_t c[4] = {static_cast<uint32_t>(position), 0, 0, 0};
  uint32_t k[2] = {seed[0], seed[1]};
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    for (int i = 0; i < 4; ++i) c[i] = next[i];
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  const uint64_t bits = (uint64_t{c[0]} << 32 | c[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace edgewise
