// sample: draws the next token of every sampled row and writes it to the history of the row's slot.
//
// In this order, as vLLM: logit bias; repetition penalty over prompt and output; presence and frequency penalties over
// the output; temperature; min-p; top-k; top-p. Candidates are ordered by logit, ties by lower id: top-k keeps exactly
// k of them, top-p the fewest that reach the mass, the one that crosses it included, never fewer than one. The draw
// walks the kept tokens by id with a uniform number from (seed, position) alone, so that it depends neither on the
// batch nor on preemption. Log probabilities are those of the model: of the logits before bias, penalties and
// temperature. Logits are overwritten.
#pragma once

#include "core/op.h"
#include "core/sampling.h"

namespace edgewise {

struct Sample {
  Tensor logits;       // f32 [S, V]
  Tensor rows;         // i32 [S, 4] {slot or -1: void, position, epoch, prompt length}
  Tensor params;       // i32 [slots, 16], SampleParams
  Tensor bias_ids;     // i32 [slots, B]
  Tensor bias_values;  // f32 [slots, B]
  Tensor history;      // i32 [slots, max_len]: token at each position
  Tensor out;          // i32 [S, 48], SampleRecord

  int64_t count() const { return logits.shape[0]; }
  int64_t vocab() const { return logits.shape[1]; }
};

inline Sample parse_sample(const Args& a) {
  Sample p;
  p.logits = a.tensor("logits", {DType::f32}, {-1, -1});
  const int64_t S = p.logits.shape[0];
  if (p.vocab() < 1 || p.vocab() > (1 << 30)) throw OpError("logits", "needs 1 to 2^30 tokens");
  p.rows = a.dense("rows", {DType::i32}, {S, kSampleRow});
  p.params = a.dense("params", {DType::i32}, {-1, kSampleParams});
  const int64_t slots = p.params.shape[0];
  p.bias_ids = a.tensor("bias_ids", {DType::i32}, {slots, -1});
  p.bias_values = a.tensor("bias_values", {DType::f32}, {slots, p.bias_ids.shape[1]});
  p.history = a.tensor("history", {DType::i32}, {slots, -1});
  p.out = a.dense("out", {DType::i32}, {S, kSampleOut});
  return p;
}

// What row `i` asks for; checks every index.
inline SampleRow sample_row(const Sample& p, int64_t i) {
  return read_sample_row(p.rows.data<int32_t>() + i * kSampleRow, p.params, p.bias_ids, p.bias_values, p.history,
                         p.vocab());
}

}  // namespace edgewise
