// plan_expand: applies a plan's updates to the device's slot state, then writes out the step as the model reads it.
//
// Rows lie back to back in the tokens; a row's tokens come from its slot's history, where each goes into the pool from
// its slot's page table. What the plan leaves of the output is padding: tokens of id 0 that are written nowhere, rows
// of at most one token with kv_len 0, void samples. It reads nothing but the plan, so a graph replays it.
//
//   plan         i32 [capacity]         core/plan.h; what lies beyond the header's length is ignored
//   page_table   i32 [slots, max_pages]
//   history      i32 [slots, max_len]
//   params       i32 [slots, 16]
//   bias_ids     i32 [slots, B], bias_values f32 [slots, B]
//   token_ids, positions, write_slots   i32 [T]
//   row_slot, kv_len                    i32 [R]; row_start i32 [R + 1]
//   logit_rows                          i32 [S]; sample_rows i32 [S, 4]
#pragma once

#include "core/op.h"
#include "core/plan.h"
#include "core/sampling.h"

namespace edgewise {

struct PlanExpand {
  Tensor plan, page_table, history, params, bias_ids, bias_values;
  Tensor token_ids, positions, write_slots, row_slot, row_start, kv_len, logit_rows, sample_rows;
  int64_t tokens, rows, samples;
};

inline PlanExpand parse_plan_expand(const Args& a) {
  PlanExpand p;
  p.plan = a.dense("plan", {DType::i32}, {-1});
  p.page_table = a.dense("page_table", {DType::i32}, {-1, -1});
  const int64_t slots = p.page_table.shape[0];
  p.history = a.dense("history", {DType::i32}, {slots, -1});
  p.params = a.dense("params", {DType::i32}, {slots, kSampleParams});
  p.bias_ids = a.dense("bias_ids", {DType::i32}, {slots, -1});
  p.bias_values = a.dense("bias_values", {DType::f32}, {slots, p.bias_ids.shape[1]});
  p.token_ids = a.dense("token_ids", {DType::i32}, {-1});
  p.tokens = p.token_ids.shape[0];
  p.positions = a.dense("positions", {DType::i32}, {p.tokens});
  p.write_slots = a.dense("write_slots", {DType::i32}, {p.tokens});
  p.row_slot = a.dense("row_slot", {DType::i32}, {-1});
  p.rows = p.row_slot.shape[0];
  p.row_start = a.dense("row_start", {DType::i32}, {p.rows + 1});
  p.kv_len = a.dense("kv_len", {DType::i32}, {p.rows});
  p.logit_rows = a.dense("logit_rows", {DType::i32}, {-1});
  p.samples = p.logit_rows.shape[0];
  p.sample_rows = a.dense("sample_rows", {DType::i32}, {p.samples, kSampleRow});
  if (p.tokens < 1) throw OpError("token_ids", "needs at least one token");
  if (p.bias_ids.shape[1] < kPlanMaxBias) throw OpError("bias_ids", "needs room for " + std::to_string(kPlanMaxBias));
  return p;
}

}  // namespace edgewise
