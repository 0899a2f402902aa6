// The plan: one step as one array of int32. gpu-node/engine/plan.ts has the same constants and the explanation of the
// layout; a test compares the two through planLayout().
//
//   [ header 16 | updates: [kind, slot, start, count | payload] | rows: [slot, new, past, sample, epoch, prompt, 0, 0] ]
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace edgewise {

constexpr int32_t kPlanMagic = 0x45575031, kPlanVersion = 1;

enum PlanHeader {
  kPlanMagicAt,
  kPlanVersionAt,
  kPlanLength,
  kPlanStepLow,
  kPlanStepHigh,
  kPlanFlags,
  kPlanTokens,
  kPlanRows,
  kPlanExtendRows,
  kPlanExtendTokens,
  kPlanSamples,
  kPlanUpdates,
  kPlanRowsOffset,
  kPlanHeader = 16,
};

// Logits of every token are wanted, not of each sampled row's last one; samples == tokens, and nothing is sampled.
constexpr int32_t kPlanAllLogits = 1;

enum PlanUpdate { kUpdateRelease = 1, kUpdatePages, kUpdateHistory, kUpdateParams, kUpdateBias, kUpdateHeader = 4 };

enum PlanRow { kRowSlot, kRowNew, kRowPast, kRowSample, kRowEpoch, kRowPrompt, kRowStride = 8 };

enum PlanLimit {
  kLimitSlots,
  kLimitMaxPages,
  kLimitMaxLen,
  kLimitPages,
  kLimitVocab,
  kLimitMaxTokens,
  kLimitMaxRows,
  kLimitCapacity,
  kPlanLimits,
};

constexpr int32_t kPlanMaxBias = 300;

// Every constant by the name that plan.ts gives it.
std::vector<std::pair<std::string, int64_t>> plan_layout();

// Throws std::runtime_error("plan: <field>: ...") for the first thing that is wrong: the layout, a count, or an index
// out of `limits` (kPlanLimits of them). `size` is what was handed over; the header's length has to equal it.
void validate_plan(const int32_t* plan, size_t size, const int32_t* limits, size_t limit_count);

}  // namespace edgewise
