// The updates of a plan are the work of one block, each of all its threads, in order. Then tokens are spread over blocks:
// each finds the first token of every row by a prefix sum over the plan's rows, and its own tokens' rows by bisection.
// A decode step is one launch of one block; bound by latency, a few dependent reads.
//
// The host has validated the plan (validate_plan); here only what keeps every access within the tensors is checked again.
#include "core/kv_layout.h"
#include "cuda/block_scan.cuh"
#include "cuda/launch.h"
#include "ops/plan_expand/op.h"

namespace edgewise::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kTokensPerBlock = 1024;
constexpr int kSampleShift = 40;  // of a prefix sum's words: tokens below, samples above

struct Expand {
  const int32_t* plan;
  int32_t capacity, slots, max_pages, max_len, bias_room, tokens, rows, samples;
  int32_t *page_table, *history, *params, *bias_ids, *bias_values;
  int32_t *token_ids, *positions, *write_slots, *row_slot, *row_start, *kv_len, *logit_rows, *sample_rows;
  Fault fault;

  __device__ const int32_t* row(int r) const { return plan + plan[kPlanRowsOffset] + r * kRowStride; }
};

__device__ inline bool within(int64_t value, int64_t low, int64_t high) { return value >= low && value <= high; }

// Whether the header is that of a plan whose rows fit; raises otherwise.
__device__ bool valid_header(const Expand& e) {
  const int32_t* h = e.plan;
  const bool valid = h[kPlanMagicAt] == kPlanMagic && h[kPlanVersionAt] == kPlanVersion &&
                     within(h[kPlanLength], kPlanHeader, e.capacity) && within(h[kPlanRows], 0, e.rows) &&
                     within(h[kPlanTokens], 0, e.tokens) && within(h[kPlanSamples], 0, e.samples) &&
                     h[kPlanRowsOffset] >= kPlanHeader &&
                     h[kPlanRowsOffset] + int64_t{kRowStride} * h[kPlanRows] == h[kPlanLength];
  if (!valid && threadIdx.x == 0) raise(e.fault, FaultCode::bad_index, h[kPlanLength]);
  return valid;
}

// What an update writes to: `room` words from `at`. Null for a kind that does not exist.
struct Target {
  int32_t* at;
  int32_t room;
};

__device__ Target target_of(const Expand& e, int32_t kind, int64_t slot) {
  switch (kind) {
    case kUpdateRelease: return {e.page_table + slot * e.max_pages, 0};
    case kUpdatePages: return {e.page_table + slot * e.max_pages, e.max_pages};
    case kUpdateHistory: return {e.history + slot * e.max_len, e.max_len};
    case kUpdateParams: return {e.params + slot * kSampleParams, kSampleParams};
    case kUpdateBias: return {e.bias_ids + slot * e.bias_room, e.bias_room};
    default: return {nullptr, 0};
  }
}

// By all threads of the block; the last update is visible to all of them afterwards.
__device__ void apply_updates(const Expand& e) {
  int64_t at = kPlanHeader;
  for (int32_t u = 0; u < e.plan[kPlanUpdates]; ++u) {
    const int32_t* update = e.plan + at;
    const int64_t end = e.plan[kPlanRowsOffset];
    if (at + kUpdateHeader > end) return raise(e.fault, FaultCode::bad_index, u);
    const int32_t kind = update[0], slot = update[1], start = update[2], count = update[3];
    const int32_t* payload = update + kUpdateHeader;
    const Target target = target_of(e, kind, within(slot, 0, e.slots - 1) ? slot : 0);
    at += kUpdateHeader + int64_t{count} * (kind == kUpdateBias ? 2 : 1);
    if (!within(slot, 0, e.slots - 1)) return raise(e.fault, FaultCode::bad_index, slot);
    if (!target.at || start < 0 || count < 0 || int64_t{start} + count > target.room || at > end)
      return raise(e.fault, FaultCode::bad_index, count);
    const int me = threadIdx.x;
    for (int i = me; i < count; i += kThreads) target.at[start + i] = payload[i];
    if (kind == kUpdateBias)
      for (int i = me; i < count; i += kThreads) e.bias_values[int64_t{slot} * e.bias_room + i] = payload[count + i];
    if (kind == kUpdateRelease) {
      for (int i = me; i < e.max_pages; i += kThreads) target.at[i] = 0;
      for (int i = me; i < kSampleParams; i += kThreads) e.params[int64_t{slot} * kSampleParams + i] = 0;
    }
    __syncthreads();  // the next update may write the same words
  }
}

// ends[r]: tokens and samples of the rows up to r, r included. False when rows are wrong, after raising it.
__device__ bool sum_rows(const Expand& e, int rows, uint64_t* ends, uint64_t* scratch) {
  __shared__ int32_t wrong;
  if (threadIdx.x == 0) wrong = 0;
  __syncthreads();
  for (int first = 0; first < rows; first += kThreads) {
    const int r = first + threadIdx.x;
    uint64_t mine = 0;
    if (r < rows) {
      const int32_t* row = e.row(r);
      const bool good = within(row[kRowNew], 1, e.tokens) && within(row[kRowSample], 0, 1) &&
                        within(row[kRowSlot], -1, e.slots - 1) && row[kRowPast] >= 0 &&
                        int64_t{row[kRowPast]} + row[kRowNew] <= e.max_len;
      if (good) mine = static_cast<uint64_t>(row[kRowNew]) | static_cast<uint64_t>(row[kRowSample]) << kSampleShift;
      else wrong = 1;
    }
    const uint64_t before = first == 0 ? 0 : ends[first - 1];
    mine = before + block_prefix_sum(mine, scratch).through;
    if (r < rows) ends[r] = mine;
    __syncthreads();
  }
  const uint64_t all = rows == 0 ? 0 : ends[rows - 1];
  const uint64_t tokens = all & ((uint64_t{1} << kSampleShift) - 1), samples = all >> kSampleShift;
  const bool all_logits = e.plan[kPlanFlags] & kPlanAllLogits;
  const bool good = wrong == 0 && tokens <= static_cast<uint64_t>(e.tokens) &&
                    (all_logits || samples <= static_cast<uint64_t>(e.samples));
  if (!good && threadIdx.x == 0) raise(e.fault, FaultCode::bad_index, rows);
  return good;
}

__device__ inline int32_t token_end(const uint64_t* ends, int r) {
  return r < 0 ? 0 : static_cast<int32_t>(ends[r] & ((uint64_t{1} << kSampleShift) - 1));
}
__device__ inline int32_t sample_end(const uint64_t* ends, int r) {
  return r < 0 ? 0 : static_cast<int32_t>(ends[r] >> kSampleShift);
}

__device__ void write_token(const Expand& e, int rows, const uint64_t* ends, int32_t i) {
  int low = 0, high = rows;  // the row that holds token i: the first that ends beyond it
  while (low < high) {
    const int middle = (low + high) / 2;
    if (token_end(ends, middle) > i) high = middle;
    else low = middle + 1;
  }
  int32_t id = 0, position = 0, write = -1;
  const int64_t slot = low < rows ? e.row(low)[kRowSlot] : -1;
  if (slot >= 0) {
    position = e.row(low)[kRowPast] + i - token_end(ends, low - 1);
    id = e.history[slot * e.max_len + position];
    const int32_t index = position / kPageTokens;
    const int32_t page = index < e.max_pages ? e.page_table[slot * e.max_pages + index] : 0;
    if (page > 0 && page <= INT32_MAX / kPageTokens - 1) write = page * kPageTokens + position % kPageTokens;
    else raise(e.fault, FaultCode::bad_index, page);
  }
  e.token_ids[i] = id;
  e.positions[i] = position;
  e.write_slots[i] = write;
}

// Rows and their samples, the padding of both included. By the threads of one block.
__device__ void write_rows(const Expand& e, int rows, const uint64_t* ends) {
  const int32_t total = token_end(ends, rows - 1);
  const bool all_logits = rows > 0 && e.plan[kPlanFlags] & kPlanAllLogits;
  for (int r = threadIdx.x; r <= e.rows; r += kThreads) {
    e.row_start[r] = r <= rows ? token_end(ends, r - 1) : min(total + r - rows, e.tokens);
    if (r == e.rows) break;
    const int32_t* row = r < rows ? e.row(r) : nullptr;
    const bool real = row && row[kRowSlot] >= 0;
    const int32_t end = real ? row[kRowPast] + row[kRowNew] : 0;
    e.row_slot[r] = real ? row[kRowSlot] : 0;
    e.kv_len[r] = end;
    if (!row || !row[kRowSample] || all_logits) continue;
    const int32_t s = sample_end(ends, r) - 1;
    e.logit_rows[s] = token_end(ends, r) - 1;
    int32_t* record = e.sample_rows + s * kSampleRow;
    record[0] = row[kRowSlot], record[1] = end, record[2] = row[kRowEpoch], record[3] = row[kRowPrompt];
  }
  const int32_t sampled = all_logits ? 0 : sample_end(ends, rows - 1);
  for (int s = sampled + threadIdx.x; s < e.samples; s += kThreads) {
    e.logit_rows[s] = all_logits ? min(s, e.tokens - 1) : 0;
    int32_t* record = e.sample_rows + s * kSampleRow;
    record[0] = -1, record[1] = record[2] = record[3] = 0;
  }
}

// Dynamic shared memory: a 64-bit word per row.
template <bool kUpdates, bool kExpand>
__global__ void __launch_bounds__(kThreads) plan_expand_kernel(Expand e) {
  __shared__ uint64_t scratch[32];
  wait_for_previous_kernel();
  let_next_kernel_start();
  const bool valid = valid_header(e);
  if (kUpdates && valid) apply_updates(e);
  if constexpr (kExpand) {
    __syncthreads();
    auto* ends = static_cast<uint64_t*>(dynamic_shared());
    int rows = valid ? e.plan[kPlanRows] : 0;
    if (!sum_rows(e, rows, ends, scratch)) rows = 0;
    const int32_t first = blockIdx.x * kTokensPerBlock, end = min(first + kTokensPerBlock, e.tokens);
    for (int32_t i = first + threadIdx.x; i < end; i += kThreads) write_token(e, rows, ends, i);
    if (blockIdx.x == 0) write_rows(e, rows, ends);
  }
}

void plan_expand_cuda(const PlanExpand& p, Context& context) {
  const auto size = [](const Tensor& t, int dim) { return static_cast<int32_t>(t.shape[dim]); };
  const auto words = [](const Tensor& t) { return t.data<int32_t>(); };
  if (p.plan.shape[0] < kPlanHeader) throw OpError("plan", "is shorter than a header");
  const Expand e{words(p.plan), size(p.plan, 0), size(p.page_table, 0), size(p.page_table, 1), size(p.history, 1),
                 size(p.bias_ids, 1), size(p.token_ids, 0), size(p.row_slot, 0), size(p.logit_rows, 0),
                 words(p.page_table), words(p.history), words(p.params), words(p.bias_ids), words(p.bias_values),
                 words(p.token_ids), words(p.positions), words(p.write_slots), words(p.row_slot), words(p.row_start),
                 words(p.kv_len), words(p.logit_rows), words(p.sample_rows), fault_of(context)};
  Grid grid{.blocks = 1, .threads = kThreads, .shared = e.rows * sizeof(uint64_t), .dependent = true};
  if (e.tokens <= kTokensPerBlock) return launch(context, plan_expand_kernel<true, true>, grid, e);
  launch(context, plan_expand_kernel<true, false>, grid, e);
  grid.blocks = ceil_div(e.tokens, kTokensPerBlock);
  launch(context, plan_expand_kernel<false, true>, grid, e);
}

EDGEWISE_CUDA_KERNEL(PlanExpand, plan_expand_cuda);

}  // namespace
}  // namespace edgewise::cuda
