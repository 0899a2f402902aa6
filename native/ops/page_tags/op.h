// page_tags: compares, for every row of a step, the pages that it is about to read or write with what its sequence was
// granted (core/page_tags.h). One launch, after plan_expand and before anything else: stream order is the barrier.
//
// A row fails by its first page that does not agree. It then reads and writes nothing: its write slots become -1 and its
// kv_len 0, in this step and, as the failure stays with the slot until its next stay begins, in every later one. Rows of
// slot -1 and rows beyond the plan's are void. The step's number goes into every verdict: one that is missing is an old
// one.
//
//   plan         i32 [capacity]               core/plan.h; its rows are what is checked
//   page_table   i32 [slots, max_pages]
//   pages        i32 [pages, 8]
//   expected     i32 [slots, max_pages, 8]
//   slots        i32 [slots, 4]               failures are entered
//   row_start    i32 [R + 1]
//   kv_len       i32 [R]
//   write_slots  i32 [T]
//   verdicts     i32 [at least R, 16]         the first R are written
#pragma once

#include "core/kv_layout.h"
#include "core/op.h"
#include "core/page_tags.h"
#include "core/plan.h"

namespace edgewise {

struct PageTags {
  Tensor plan, page_table, pages, expected, slots, row_start, kv_len, write_slots, verdicts;
  int64_t rows, tokens;
};

inline PageTags parse_page_tags(const Args& a) {
  PageTags p;
  p.plan = a.dense("plan", {DType::i32}, {-1});
  if (p.plan.shape[0] < kPlanHeader) throw OpError("plan", "has no room for a header");
  p.page_table = a.dense("page_table", {DType::i32}, {-1, -1});
  const int64_t slots = p.page_table.shape[0];
  p.pages = a.dense("pages", {DType::i32}, {-1, kTagPageWords});
  p.expected = a.dense("expected", {DType::i32}, {slots, p.page_table.shape[1], kTagExpectedWords});
  p.slots = a.dense("slots", {DType::i32}, {slots, kTagSlotWords});
  p.kv_len = a.dense("kv_len", {DType::i32}, {-1});
  p.rows = p.kv_len.shape[0];
  p.row_start = a.dense("row_start", {DType::i32}, {p.rows + 1});
  p.write_slots = a.dense("write_slots", {DType::i32}, {-1});
  p.tokens = p.write_slots.shape[0];
  p.verdicts = a.dense("verdicts", {DType::i32}, {-1, kVerdictWords});
  if (p.verdicts.shape[0] < p.rows) throw OpError("verdicts", "has fewer rows than kv_len");
  return p;
}

// Tokens of logical page `i` that a row with `past` tokens reads.
constexpr int32_t tokens_read(int32_t past, int32_t i) {
  const int32_t left = past - i * kPageTokens;
  return left < 0 ? 0 : left < kPageTokens ? left : kPageTokens;
}

// Why one page does not agree; kCauseNone when it does. `page` is the page table's entry.
constexpr int32_t page_cause(const int32_t* expected, const int32_t* record, int32_t page, int32_t epoch, int32_t read) {
  if (expected[kTagExpectedEpoch] != epoch) return kCauseEpoch;
  if (expected[kTagExpectedPage] != page) return kCauseMapping;
  if (expected[kTagExpectedGeneration] != record[kTagPageGeneration]) return kCauseGeneration;
  if (expected[kTagExpectedOwner] != record[kTagPageOwner]) return kCauseOwner;
  if (expected[kTagExpectedTag] != record[kTagPageTag] || expected[kTagExpectedTagHigh] != record[kTagPageTagHigh])
    return kCauseTag;
  return record[kTagPageWritten] < read ? kCauseWritten : kCauseNone;
}

}  // namespace edgewise
