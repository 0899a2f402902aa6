// The only kernel of the CPU backends: a step's plan is a few hundred words, which one thread expands in microseconds.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "core/kv_layout.h"
#include "ops/plan_expand/op.h"

namespace edgewise {
namespace {

int32_t* row_of(const Tensor& t, int64_t row) { return t.data<int32_t>() + row * t.shape[1]; }

// The plan is device data: it is checked here again, within what these tensors hold.
const int32_t* checked_plan(const PlanExpand& p) {
  const int32_t* plan = p.plan.data<int32_t>();
  const auto narrow = [](int64_t n) { return static_cast<int32_t>(std::clamp<int64_t>(n, 1, INT32_MAX)); };
  int32_t limits[kPlanLimits];
  limits[kLimitSlots] = narrow(p.page_table.shape[0]);
  limits[kLimitMaxPages] = narrow(p.page_table.shape[1]);
  limits[kLimitMaxLen] = narrow(p.history.shape[1]);
  limits[kLimitPages] = limits[kLimitVocab] = INT32_MAX;
  limits[kLimitMaxTokens] = narrow(p.tokens);
  limits[kLimitMaxRows] = narrow(p.rows);
  limits[kLimitCapacity] = narrow(p.plan.shape[0]);
  if (p.plan.shape[0] < kPlanHeader || plan[kPlanLength] < 0 || plan[kPlanLength] > p.plan.shape[0])
    throw std::runtime_error("plan: length: is not that of a plan");
  validate_plan(plan, static_cast<size_t>(plan[kPlanLength]), limits, kPlanLimits);
  if (plan[kPlanSamples] > p.samples) throw std::runtime_error("plan: samples: more than logit_rows holds");
  return plan;
}

// Returns where the next update begins.
const int32_t* apply_update(const PlanExpand& p, const int32_t* update) {
  const int32_t kind = update[0], slot = update[1], start = update[2], count = update[3];
  const int32_t* payload = update + kUpdateHeader;
  switch (kind) {
    case kUpdateRelease:
      std::fill_n(row_of(p.page_table, slot), p.page_table.shape[1], 0);
      std::fill_n(row_of(p.params, slot), kSampleParams, 0);
      return payload;
    case kUpdatePages: std::copy_n(payload, count, row_of(p.page_table, slot) + start); return payload + count;
    case kUpdateHistory: std::copy_n(payload, count, row_of(p.history, slot) + start); return payload + count;
    case kUpdateParams: std::copy_n(payload, count, row_of(p.params, slot)); return payload + count;
    default:
      std::copy_n(payload, count, row_of(p.bias_ids, slot));
      std::copy_n(payload + count, count, row_of(p.bias_values, slot));
      return payload + 2 * count;
  }
}

void expand_tokens(const PlanExpand& p, const int32_t* row, int64_t first) {
  const int32_t slot = row[kRowSlot];
  int32_t* ids = p.token_ids.data<int32_t>() + first;
  int32_t* positions = p.positions.data<int32_t>() + first;
  int32_t* write = p.write_slots.data<int32_t>() + first;
  for (int32_t i = 0; i < row[kRowNew]; ++i) {
    const int32_t position = row[kRowPast] + i;
    positions[i] = slot < 0 ? 0 : position;
    ids[i] = slot < 0 ? 0 : row_of(p.history, slot)[position];
    write[i] = -1;
    if (slot < 0) continue;
    const int32_t index = position / kPageTokens;
    const int64_t page = index < p.page_table.shape[1] ? row_of(p.page_table, slot)[index] : 0;
    if (page == 0) throw std::runtime_error("plan: slot " + std::to_string(slot) + " has no page for its tokens");
    write[i] = static_cast<int32_t>(page * kPageTokens + position % kPageTokens);
  }
}

void plan_expand_reference(const PlanExpand& p, Context&) {
  const int32_t* plan = checked_plan(p);
  const int32_t* update = plan + kPlanHeader;
  for (int32_t i = 0; i < plan[kPlanUpdates]; ++i) update = apply_update(p, update);

  const bool all_logits = plan[kPlanFlags] & kPlanAllLogits;
  int32_t* row_start = p.row_start.data<int32_t>();
  int32_t* logit_rows = p.logit_rows.data<int32_t>();
  int32_t* sample_rows = p.sample_rows.data<int32_t>();
  std::fill_n(p.token_ids.data<int32_t>(), p.tokens, 0);
  std::fill_n(p.positions.data<int32_t>(), p.tokens, 0);
  std::fill_n(p.write_slots.data<int32_t>(), p.tokens, -1);
  std::fill_n(sample_rows, p.samples * kSampleRow, 0);
  for (int64_t s = 0; s < p.samples; ++s) {
    logit_rows[s] = all_logits ? static_cast<int32_t>(std::min(s, p.tokens - 1)) : 0;
    sample_rows[s * kSampleRow] = -1;
  }

  int32_t token = 0;
  int64_t sample = 0;
  for (int64_t r = 0; r < p.rows; ++r) {
    row_start[r] = token;
    p.row_slot.data<int32_t>()[r] = 0;
    p.kv_len.data<int32_t>()[r] = 0;
    if (r >= plan[kPlanRows]) {  // padding
      token = static_cast<int32_t>(std::min<int64_t>(token + 1, p.tokens));
      continue;
    }
    const int32_t* row = plan + plan[kPlanRowsOffset] + r * kRowStride;
    const int32_t slot = row[kRowSlot], end = row[kRowPast] + row[kRowNew];
    expand_tokens(p, row, token);
    token += row[kRowNew];
    if (slot >= 0) {
      p.row_slot.data<int32_t>()[r] = slot;
      p.kv_len.data<int32_t>()[r] = end;
    }
    if (!row[kRowSample] || all_logits) continue;
    logit_rows[sample] = token - 1;
    const int32_t record[kSampleRow] = {slot, slot < 0 ? 0 : end, row[kRowEpoch], row[kRowPrompt]};
    std::copy_n(record, kSampleRow, sample_rows + kSampleRow * sample++);
  }
  row_start[p.rows] = token;
}

}  // namespace

EDGEWISE_OP(plan_expand, PlanExpand, parse_plan_expand, plan_expand_reference,
            {{"plan", ArgKind::in}, {"page_table", ArgKind::inout}, {"history", ArgKind::inout},
             {"params", ArgKind::inout}, {"bias_ids", ArgKind::inout}, {"bias_values", ArgKind::inout},
             {"token_ids", ArgKind::out}, {"positions", ArgKind::out}, {"write_slots", ArgKind::out},
             {"row_slot", ArgKind::out}, {"row_start", ArgKind::out}, {"kv_len", ArgKind::out},
             {"logit_rows", ArgKind::out}, {"sample_rows", ArgKind::out}});

}  // namespace edgewise
