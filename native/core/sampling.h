// One sampled row: its parameters, the uniform number it draws, the changes to its logits, and the record it leaves.
#pragma once

#include <cstdint>

#include "core/tensor.h"

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

  bool penalized() const { return repetition != 1 || presence != 0 || frequency != 0; }
};

struct SampleResult {
  int32_t token = -1;
  SampleStatus status = kSampleVoid;
  float logprob = 0;
  int32_t top_count = 0;
  int32_t top_ids[kMaxTopLogprobs];
  float top_logprobs[kMaxTopLogprobs];
};

// Reads a row and its slot's parameters; throws when an index is out of range.
SampleRow read_sample_row(const int32_t* row, const Tensor& params, const Tensor& bias_ids, const Tensor& bias_values,
                          const Tensor& history, int64_t vocab);

// Applies bias and penalties; results stay finite, and -inf stays -inf. `counts` is i32[vocab], zeros before and after.
void adjust_logits(const SampleRow& row, float* logits, int32_t* counts);

// Writes the 48 words of the record, and the token into the history.
void write_sample(const SampleRow& row, const SampleResult& result, int32_t* out);

// Uniform in [0, 1) with 53 bits: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11)
// with the seed as key and {position, 0, 0, 0} as counter.
double sample_uniform(const uint32_t seed[2], int32_t position);

}  // namespace edgewise
