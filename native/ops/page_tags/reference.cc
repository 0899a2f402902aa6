// The only kernel of the CPU backends: 144 pages of a row take a microsecond or so.
#include <algorithm>
#include <stdexcept>

#include "ops/page_tags/op.h"

namespace edgewise {
namespace {

struct Row {
  int32_t slot, past, end, epoch;
};

// Fills the verdict of one row of the plan; true when it may go on.
bool check_row(const PageTags& p, const Row& row, int32_t* verdict) {
  verdict[kVerdictSlot] = row.slot;
  verdict[kVerdictEpoch] = row.epoch;
  verdict[kVerdictLogical] = -1;
  verdict[kVerdictStatus] = kTagFailed;
  const int64_t max_pages = p.page_table.shape[1], pages = p.pages.shape[0];
  const int64_t count = (row.end + int64_t{kPageTokens} - 1) / kPageTokens;
  const auto fail = [&](int32_t cause) {
    verdict[kVerdictCause] = cause;
    return false;
  };
  if (row.slot >= p.slots.shape[0] || count > max_pages || row.past < 0) return fail(kCauseRange);
  const int32_t* slot = p.slots.data<int32_t>() + int64_t{row.slot} * kTagSlotWords;
  if (slot[kTagSlotEpoch] != row.epoch) return fail(kCauseEpoch);
  if (slot[kTagSlotFailed] != 0) return fail(kCauseBefore);
  for (int32_t i = 0; i < count; ++i) {
    const int64_t at = row.slot * max_pages + i;
    const int32_t page = p.page_table.data<int32_t>()[at];
    const int32_t* expected = p.expected.data<int32_t>() + at * kTagExpectedWords;
    const bool exists = page > 0 && page < pages;
    const int32_t* record = p.pages.data<int32_t>() + (exists ? page : 0) * int64_t{kTagPageWords};
    const int32_t cause =
        exists ? page_cause(expected, record, page, row.epoch, tokens_read(row.past, i)) : int32_t{kCauseRange};
    ++verdict[kVerdictChecked];
    if (cause == kCauseNone) continue;
    verdict[kVerdictLogical] = i;
    verdict[kVerdictPage] = expected[kTagExpectedPage];
    verdict[kVerdictFoundPage] = page;
    verdict[kVerdictGeneration] = expected[kTagExpectedGeneration];
    verdict[kVerdictFoundGeneration] = record[kTagPageGeneration];
    std::copy_n(expected + kTagExpectedTag, 2, verdict + kVerdictTag);
    std::copy_n(record + kTagPageTag, 2, verdict + kVerdictFoundTag);
    return fail(cause);
  }
  verdict[kVerdictStatus] = kTagOk;
  return true;
}

void page_tags_reference(const PageTags& p, Context&) {
  const int32_t* plan = p.plan.data<int32_t>();
  const int64_t live = plan[kPlanRows], first = plan[kPlanRowsOffset];
  if (live < 0 || live > p.rows || first < kPlanHeader || first + live * kRowStride > p.plan.shape[0])
    throw std::runtime_error("plan: rows are out of range");
  for (int64_t r = 0; r < p.rows; ++r) {
    int32_t* verdict = p.verdicts.data<int32_t>() + r * kVerdictWords;
    std::fill_n(verdict, kVerdictWords, 0);
    verdict[kVerdictStep] = plan[kPlanStepLow];
    verdict[kVerdictStepHigh] = plan[kPlanStepHigh];
    const int32_t* row = plan + first + r * kRowStride;
    if (r >= live || row[kRowSlot] < 0) {
      verdict[kVerdictStatus] = kTagVoid;
      continue;
    }
    if (check_row(p, {row[kRowSlot], row[kRowPast], row[kRowPast] + row[kRowNew], row[kRowEpoch]}, verdict)) continue;
    const int32_t* start = p.row_start.data<int32_t>() + r;
    if (start[0] < 0 || start[1] < start[0] || start[1] > p.tokens) throw std::runtime_error("row_start: is out of range");
    std::fill(p.write_slots.data<int32_t>() + start[0], p.write_slots.data<int32_t>() + start[1], -1);
    p.kv_len.data<int32_t>()[r] = 0;
    if (row[kRowSlot] < p.slots.shape[0])
      p.slots.data<int32_t>()[row[kRowSlot] * kTagSlotWords + kTagSlotFailed] = verdict[kVerdictCause];
  }
}

}  // namespace

EDGEWISE_OP(page_tags, PageTags, parse_page_tags, page_tags_reference,
            {{"plan", ArgKind::in}, {"page_table", ArgKind::in}, {"pages", ArgKind::in}, {"expected", ArgKind::in},
             {"slots", ArgKind::inout}, {"row_start", ArgKind::in}, {"kv_len", ArgKind::inout},
             {"write_slots", ArgKind::inout}, {"verdicts", ArgKind::out}});

}  // namespace edgewise
