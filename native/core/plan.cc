#include "core/plan.h"

#include <stdexcept>

#include "core/kv_layout.h"
#include "core/sampling.h"

namespace edgewise {

std::vector<std::pair<std::string, int64_t>> plan_layout() {
  return {
      {"magic", kPlanMagic},
      {"version", kPlanVersion},
      {"page_tokens", kPageTokens},
      {"h_magic", kPlanMagicAt},
      {"h_version", kPlanVersionAt},
      {"h_length", kPlanLength},
      {"h_step_low", kPlanStepLow},
      {"h_step_high", kPlanStepHigh},
      {"h_flags", kPlanFlags},
      {"h_tokens", kPlanTokens},
      {"h_rows", kPlanRows},
      {"h_extend_rows", kPlanExtendRows},
      {"h_extend_tokens", kPlanExtendTokens},
      {"h_samples", kPlanSamples},
      {"h_updates", kPlanUpdates},
      {"h_rows_offset", kPlanRowsOffset},
      {"header", kPlanHeader},
      {"flag_all_logits", kPlanAllLogits},
      {"update_header", kUpdateHeader},
      {"update_release", kUpdateRelease},
      {"update_pages", kUpdatePages},
      {"update_history", kUpdateHistory},
      {"update_params", kUpdateParams},
      {"update_bias", kUpdateBias},
      {"param_count", kSampleParams},
      {"max_bias", kPlanMaxBias},
      {"row_slot", kRowSlot},
      {"row_new", kRowNew},
      {"row_past", kRowPast},
      {"row_sample", kRowSample},
      {"row_epoch", kRowEpoch},
      {"row_prompt", kRowPrompt},
      {"row_stride", kRowStride},
      {"l_slots", kLimitSlots},
      {"l_max_pages", kLimitMaxPages},
      {"l_max_len", kLimitMaxLen},
      {"l_pages", kLimitPages},
      {"l_vocab", kLimitVocab},
      {"l_max_tokens", kLimitMaxTokens},
      {"l_max_rows", kLimitMaxRows},
      {"l_capacity", kLimitCapacity},
      {"limits", kPlanLimits},
      {"sample_stride", kSampleRow},
      {"result_slot", 0},
      {"result_position", 1},
      {"result_token", 2},
      {"result_epoch", 3},
      {"result_logprob", 4},
      {"result_top_count", 5},
      {"result_status", 6},
      {"result_top", 8},
      {"result_stride", kSampleOut},
      {"status_ok", kSampleOk},
      {"status_nan", kSampleBadLogits},
  };
}

namespace {

[[noreturn]] void bad(const std::string& field, int64_t value, const std::string& wanted) {
  throw std::runtime_error("plan: " + field + ": is " + std::to_string(value) + ", must be " + wanted);
}

void in_range(const std::string& field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) bad(field, value, std::to_string(low) + " to " + std::to_string(high));
}

void equal(const std::string& field, int64_t value, int64_t wanted) {
  if (value != wanted) bad(field, value, std::to_string(wanted));
}

void check_header(const int32_t* plan, size_t size, const int32_t* limits) {
  if (size < kPlanHeader) bad("length", static_cast<int64_t>(size), "at least the header");
  equal("magic", plan[kPlanMagicAt], kPlanMagic);
  equal("version", plan[kPlanVersionAt], kPlanVersion);
  equal("length", plan[kPlanLength], static_cast<int64_t>(size));
  in_range("length", plan[kPlanLength], kPlanHeader, limits[kLimitCapacity]);
  in_range("flags", plan[kPlanFlags], 0, kPlanAllLogits);
  in_range("rows", plan[kPlanRows], 1, limits[kLimitMaxRows]);
  in_range("tokens", plan[kPlanTokens], plan[kPlanRows], limits[kLimitMaxTokens]);
  in_range("extend rows", plan[kPlanExtendRows], 0, plan[kPlanRows]);
  in_range("updates", plan[kPlanUpdates], 0, static_cast<int64_t>(size));
  for (int i = kPlanRowsOffset + 1; i < kPlanHeader; ++i) equal("reserved header word", plan[i], 0);
}

// How many ints follow an update's header; its slot range is checked, and that its target range exists.
int64_t payload_size(const int32_t* update, const int32_t* limits) {
  const int64_t start = update[2], count = update[3];
  in_range("update: slot", update[1], 0, limits[kLimitSlots] - 1);
  in_range("update: start", start, 0, INT32_MAX);
  in_range("update: count", count, 0, INT32_MAX);
  const auto target = [&](int64_t room) { in_range("update: end", start + count, 0, room); };
  switch (update[0]) {
    case kUpdateRelease: target(0); return 0;
    case kUpdatePages: target(limits[kLimitMaxPages]); return count;
    case kUpdateHistory: target(limits[kLimitMaxLen]); return count;
    case kUpdateParams:
      equal("update: start", start, 0);
      equal("update: count", count, kSampleParams);
      return count;
    case kUpdateBias:
      equal("update: start", start, 0);
      in_range("update: count", count, 0, kPlanMaxBias);
      return 2 * count;
  }
  bad("update: kind", update[0], "a known one");
}

void check_payload(const int32_t* update, const int32_t* limits) {
  const int32_t* payload = update + kUpdateHeader;
  const int64_t count = update[3], last_token = limits[kLimitVocab] - 1;
  for (int64_t i = 0; i < count; ++i) {
    if (update[0] == kUpdatePages) in_range("page", payload[i], 1, limits[kLimitPages] - 1);
    if (update[0] == kUpdateHistory) in_range("token", payload[i], 0, last_token);
    if (update[0] == kUpdateBias) in_range("biased token", payload[i], 0, last_token);
  }
  if (update[0] == kUpdateParams) {
    in_range("top_logprobs", payload[9], -1, kMaxTopLogprobs);
    in_range("bias_count", payload[10], 0, kPlanMaxBias);
  }
}

// Returns where the updates end.
int64_t check_updates(const int32_t* plan, int64_t size, const int32_t* limits) {
  int64_t at = kPlanHeader;
  for (int32_t i = 0; i < plan[kPlanUpdates]; ++i) {
    if (at + kUpdateHeader > size) bad("updates", plan[kPlanUpdates], "as many as the plan holds");
    const int64_t end = at + kUpdateHeader + payload_size(plan + at, limits);
    if (end > size) bad("update: count", plan[at + 3], "what the plan holds");
    check_payload(plan + at, limits);
    at = end;
  }
  return at;
}

void check_rows(const int32_t* plan, int64_t size, const int32_t* limits) {
  const int32_t rows = plan[kPlanRows], extend = plan[kPlanExtendRows];
  equal("rows' end", plan[kPlanRowsOffset] + static_cast<int64_t>(rows) * kRowStride, size);
  std::vector<bool> seen(limits[kLimitSlots]);
  int64_t tokens = 0, samples = 0, extend_tokens = 0;
  for (int32_t i = 0; i < rows; ++i) {
    const int32_t* row = plan + plan[kPlanRowsOffset] + static_cast<int64_t>(i) * kRowStride;
    in_range("row: slot", row[kRowSlot], -1, limits[kLimitSlots] - 1);
    in_range("row: new tokens", row[kRowNew], 1, i < extend ? limits[kLimitMaxTokens] : 1);
    in_range("row: sample", row[kRowSample], 0, 1);
    if (i >= extend) equal("row: sample of a decode row", row[kRowSample], 1);
    // A sampled token takes the position after the row's last one.
    const int64_t last = limits[kLimitMaxLen] - row[kRowNew] - (row[kRowSample] ? 1 : 0);
    in_range("row: past tokens", row[kRowPast], 0, row[kRowSlot] < 0 ? 0 : last);
    in_range("row: prompt length", row[kRowPrompt], 0, limits[kLimitMaxLen]);
    if (row[kRowSample] && row[kRowSlot] >= 0)
      in_range("row: prompt length", row[kRowPrompt], 0, row[kRowPast] + row[kRowNew]);
    equal("row: reserved word", row[kRowPrompt + 1] | row[kRowPrompt + 2], 0);
    if (row[kRowSlot] >= 0) {
      if (seen[row[kRowSlot]]) bad("row: slot", row[kRowSlot], "that of one row only");
      seen[row[kRowSlot]] = true;
    }
    tokens += row[kRowNew];
    samples += row[kRowSample];
    if (i < extend) extend_tokens += row[kRowNew];
  }
  equal("tokens", plan[kPlanTokens], tokens);
  equal("extend tokens", plan[kPlanExtendTokens], extend_tokens);
  equal("samples", plan[kPlanSamples], plan[kPlanFlags] & kPlanAllLogits ? tokens : samples);
}

}  // namespace

void validate_plan(const int32_t* plan, size_t size, const int32_t* limits, size_t limit_count) {
  equal("number of limits", static_cast<int64_t>(limit_count), kPlanLimits);
  for (int i = 0; i < kPlanLimits; ++i) in_range("limit", limits[i], 1, INT32_MAX);
  check_header(plan, size, limits);
  const int64_t end = check_updates(plan, static_cast<int64_t>(size), limits);
  equal("rows' offset", plan[kPlanRowsOffset], end);
  check_rows(plan, static_cast<int64_t>(size), limits);
}

}  // namespace edgewise
