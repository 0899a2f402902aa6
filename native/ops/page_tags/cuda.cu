// A block per row, a thread per page of it. Bytes: 4 + 32 + 32 for every (request, page) pair; 64 rows of 144 pages are
// 627 KB, a microsecond of an H200's memory bandwidth when they miss its L2, so the launch is most of the cost.
#include "cuda/launch.h"
#include "ops/page_tags/op.h"

namespace edgewise::cuda {
namespace {

constexpr int kThreads = 128;
// A finding is logical page * kCauses + cause: the least one is the first page's.
constexpr int32_t kCauses = 16, kNoFinding = 0x7fffffff;

struct Tables {
  const int32_t *plan, *page_table, *pages, *expected;
  int32_t *slots, *kv_len, *write_slots, *verdicts;
  const int32_t* row_start;
  int64_t plan_size, rows, tokens, page_count, slot_count, max_pages;
};

// What fails a row as a whole; kCauseNone when its pages are to be looked at.
__device__ int32_t row_cause(const Tables& t, const int32_t* row, int64_t count) {
  const int32_t slot = row[kRowSlot];
  if (slot >= t.slot_count || count > t.max_pages || row[kRowPast] < 0) return kCauseRange;
  if (t.slots[slot * kTagSlotWords + kTagSlotEpoch] != row[kRowEpoch]) return kCauseEpoch;
  return t.slots[slot * kTagSlotWords + kTagSlotFailed] != 0 ? kCauseBefore : kCauseNone;
}

__device__ int32_t cause_of(const Tables& t, const int32_t* row, int32_t i) {
  const int64_t at = row[kRowSlot] * t.max_pages + i;
  const int32_t page = t.page_table[at];
  if (page <= 0 || page >= t.page_count) return kCauseRange;
  alignas(16) int32_t expected[kTagExpectedWords], record[kTagPageWords];
  const int4* from = reinterpret_cast<const int4*>(t.expected + at * kTagExpectedWords);
  reinterpret_cast<int4*>(expected)[0] = from[0];
  reinterpret_cast<int4*>(expected)[1] = from[1];
  from = reinterpret_cast<const int4*>(t.pages + int64_t{page} * kTagPageWords);
  reinterpret_cast<int4*>(record)[0] = from[0];
  reinterpret_cast<int4*>(record)[1] = from[1];
  return page_cause(expected, record, page, row[kRowEpoch], tokens_read(row[kRowPast], i));
}

// The words of a verdict that describe page `i` of the row.
__device__ void describe(const Tables& t, int32_t slot, int32_t i, int32_t* verdict) {
  const int64_t at = slot * t.max_pages + i;
  const int32_t page = t.page_table[at];
  const int32_t* expected = t.expected + at * kTagExpectedWords;
  const int32_t* record = t.pages + (page > 0 && page < t.page_count ? page : 0) * int64_t{kTagPageWords};
  verdict[kVerdictLogical] = i;
  verdict[kVerdictPage] = expected[kTagExpectedPage];
  verdict[kVerdictFoundPage] = page;
  verdict[kVerdictGeneration] = expected[kTagExpectedGeneration];
  verdict[kVerdictFoundGeneration] = record[kTagPageGeneration];
  for (int w = 0; w < 2; ++w) {
    verdict[kVerdictTag + w] = expected[kTagExpectedTag + w];
    verdict[kVerdictFoundTag + w] = record[kTagPageTag + w];
  }
}

__global__ void page_tags_kernel(Tables t, Fault fault) {
  __shared__ int32_t finding;
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int32_t r = blockIdx.x;
  const int64_t live = t.plan[kPlanRows], first = t.plan[kPlanRowsOffset];
  const bool readable = live >= 0 && live <= t.rows && first >= kPlanHeader && first + live * kRowStride <= t.plan_size;
  if (!readable && threadIdx.x == 0) raise(fault, FaultCode::bad_index, static_cast<int32_t>(first));
  const int32_t* row = t.plan + (readable && r < live ? first + int64_t{r} * kRowStride : 0);
  const bool is_void = !readable || r >= live || row[kRowSlot] < 0;
  const int32_t slot = is_void ? -1 : row[kRowSlot];
  const int64_t count = is_void ? 0 : (row[kRowPast] + int64_t{row[kRowNew]} + kPageTokens - 1) / kPageTokens;
  const int32_t whole = is_void ? int32_t{kCauseNone} : row_cause(t, row, count);
  if (threadIdx.x == 0) finding = whole == kCauseNone ? kNoFinding : whole;
  __syncthreads();
  if (whole == kCauseNone)
    for (int32_t i = threadIdx.x; i < count; i += kThreads)
      if (const int32_t cause = cause_of(t, row, i); cause != kCauseNone) atomicMin(&finding, i * kCauses + cause);
  __syncthreads();

  const int32_t found = finding;
  const bool failed = found != kNoFinding;
  const int32_t cause = failed ? found % kCauses : int32_t{kCauseNone}, page = found / kCauses;
  if (threadIdx.x == 0) {
    int32_t* verdict = t.verdicts + int64_t{r} * kVerdictWords;
    for (int i = 0; i < kVerdictWords; ++i) verdict[i] = 0;
    verdict[kVerdictStep] = t.plan[kPlanStepLow];
    verdict[kVerdictStepHigh] = t.plan[kPlanStepHigh];
    verdict[kVerdictStatus] = !readable ? kTagUnchecked : is_void ? kTagVoid : failed ? kTagFailed : kTagOk;
    if (!is_void) {
      verdict[kVerdictCause] = cause;
      verdict[kVerdictSlot] = slot;
      verdict[kVerdictEpoch] = row[kRowEpoch];
      verdict[kVerdictLogical] = -1;
      if (whole == kCauseNone) {
        verdict[kVerdictChecked] = static_cast<int32_t>(failed ? page + 1 : count);
        if (failed) describe(t, slot, page, verdict);
      }
    }
  }
  if (!failed) return;
  if (threadIdx.x == 0) {
    t.kv_len[r] = 0;
    if (slot < t.slot_count) t.slots[slot * kTagSlotWords + kTagSlotFailed] = cause;
  }
  const int32_t from = t.row_start[r], to = t.row_start[r + 1];
  if (from < 0 || to < from || to > t.tokens) {
    if (threadIdx.x == 0) raise(fault, FaultCode::bad_index, from);
    return;
  }
  for (int32_t i = from + threadIdx.x; i < to; i += kThreads) t.write_slots[i] = -1;
}

void page_tags_cuda(const PageTags& p, Context& context) {
  const auto ints = [](const Tensor& tensor) { return tensor.data<int32_t>(); };
  const Tables tables{ints(p.plan),        ints(p.page_table), ints(p.pages),      ints(p.expected), ints(p.slots),
                      ints(p.kv_len),      ints(p.write_slots), ints(p.verdicts),  ints(p.row_start), p.plan.shape[0],
                      p.rows,              p.tokens,           p.pages.shape[0],   p.slots.shape[0], p.page_table.shape[1]};
  launch(context, page_tags_kernel, {.blocks = static_cast<unsigned>(p.rows), .threads = kThreads, .dependent = true},
         tables, fault_of(context));
}

EDGEWISE_CUDA_KERNEL(PageTags, page_tags_cuda);

}  // namespace
}  // namespace edgewise::cuda
