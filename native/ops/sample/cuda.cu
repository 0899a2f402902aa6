// A row of logits is the work of one block. It reads the row once when it is greedy, and with top-k or top-p mostly
// twice: for the largest logit, then for the few candidates (select.cuh). Another time each for bias or penalties and
// for the most likely tokens.
//   bytes per row: 4 V a pass, the first from memory, others from L2
#include "cuda/launch.h"
#include "ops/sample/select.cuh"

namespace edgewise::cuda {
namespace {

constexpr int kMaxThreads = 512;  // 128 registers each: vectors loaded ahead are not spilled
constexpr int kMaxBlocks = 132;  // rows at a time: each needs V floats of scratch memory

struct SampleCall {
  float* logits;
  int64_t stride;
  const int32_t* rows;
  const int32_t* params;
  const int32_t* bias_ids;
  const float* bias_values;
  int32_t* history;
  int64_t bias_stride, value_stride, history_stride;
  int32_t* out;
  float* scratch;  // per block: [V] logits of the history's tokens before penalties, [B] biased tokens' before bias
  int32_t count, vocab, slots, biases, max_length;
  Fault fault;
};

__device__ inline bool within(int32_t value, int32_t low, int32_t high, const SampleCall& call) {
  if (value >= low && value <= high) return true;
  raise(call.fault, FaultCode::bad_index, value);
  return false;
}

// By every thread. False for a void row, and for one that names what does not exist (which is raised).
__device__ bool read_row(const SampleCall& call, int r, SampleRow& row) {
  const int32_t* words = call.rows + r * kSampleRow;
  row.slot = words[0];
  row.position = words[1];
  row.epoch = words[2];
  row.prompt_length = words[3];
  if (row.slot == -1) return false;
  if (!within(row.slot, 0, call.slots - 1, call) || !within(row.position, 0, call.max_length - 1, call) ||
      !within(row.prompt_length, 0, row.position, call))
    return false;
  read_sample_params(call.params + static_cast<int64_t>(row.slot) * kSampleParams, row);
  row.bias_ids = call.bias_ids + row.slot * call.bias_stride;
  row.bias_values = call.bias_values + row.slot * call.value_stride;
  row.history = call.history + row.slot * call.history_stride;
  return within(row.top_logprobs, -1, kMaxTopLogprobs, call) && within(row.bias_count, 0, call.biases, call);
}

// --- Bias and penalties ------------------------------------------------------------------------------------------------

// While they are counted, the logits of the history's tokens hold their occurrences in the output, as NaNs.
constexpr uint32_t kCounting = 0x7fc00000u, kCountMask = 0x003fffffu;

// What the changed logits were before.
struct Before {
  float *penalties, *bias;  // [V] by token, [B] by index in the list of biases
};

// False when an index is out of range. Ends in step.
__device__ bool adjust(const SampleCall& call, const SampleRow& row, float* y, const Before& before, uint64_t* scratch) {
  const int me = threadIdx.x, threads = blockDim.x;
  bool bad = false;
  for (int i = me; i < row.bias_count; i += threads) bad |= !within(row.bias_ids[i], 0, call.vocab - 1, call);
  for (int i = me; row.penalized() && i < row.position; i += threads)
    bad |= !within(row.history[i], 0, call.vocab - 1, call);
  if (block_total(bad, scratch) > 0) return false;

  for (int i = me; i < row.bias_count; i += threads) before.bias[i] = y[row.bias_ids[i]];
  __syncthreads();
  for (int i = me; i < row.bias_count; i += threads) {
    const int32_t id = row.bias_ids[i];
    bool first = true;  // a token that is named twice belongs to the thread of its first mention
    for (int j = 0; j < i; ++j) first &= row.bias_ids[j] != id;
    if (!first) continue;
    float v = y[id];
    for (int j = i; j < row.bias_count; ++j)
      if (row.bias_ids[j] == id) v = biased_logit(v, row.bias_values[j]);
    y[id] = v;
  }
  __syncthreads();
  if (!row.penalized()) return true;
  for (int i = me; i < row.position; i += threads) before.penalties[row.history[i]] = y[row.history[i]];
  __syncthreads();
  for (int i = me; i < row.position; i += threads) y[row.history[i]] = __uint_as_float(kCounting);
  __syncthreads();
  for (int i = row.prompt_length + me; i < row.position; i += threads)
    atomicAdd(reinterpret_cast<uint32_t*>(y + row.history[i]), 1u);
  __syncthreads();
  // Threads that share a token write the same.
  for (int i = me; i < row.position; i += threads) {
    const int32_t id = row.history[i];
    const uint32_t bits = reinterpret_cast<volatile uint32_t*>(y)[id];
    if ((bits & kCounting) == kCounting && bits >> 31 == 0)
      y[id] = penalized_logit(row, before.penalties[id], static_cast<int32_t>(bits & kCountMask));
  }
  __syncthreads();
  return true;
}

// The logit of `token` as the model gave it.
__device__ float raw_logit(const SampleRow& row, const float* y, const Before& before, int32_t token, uint64_t* scratch) {
  const int me = threadIdx.x, threads = blockDim.x;
  bool penalized = false;
  for (int i = me; row.penalized() && i < row.position; i += threads) penalized |= row.history[i] == token;
  penalized = block_total(penalized, scratch) > 0;
  for (int i = 0; i < row.bias_count; ++i)
    if (row.bias_ids[i] == token) return before.bias[i];
  return penalized ? before.penalties[token] : y[token];
}

// --- One row -----------------------------------------------------------------------------------------------------------

__device__ int32_t draw(const LogitRow& row, const SampleRow& r, const RowStats& stats, Selection& s) {
  const Weights weights{stats.top, min(1.0f / r.temperature, 1e30f)};
  const float bound = min_p_bound(r, stats.top);
  const uint32_t top_key = key_of(stats.top);
  Kept kept{{max(key_of(bound), key_of(-INFINITY) + 1), INT32_MAX}, -1};
  if (r.top_k > 0 && r.top_k < row.vocab) {
    const Goal goal{false, static_cast<double>(r.top_k), weights};
    select_first(row, kept, top_key, stats.best_key, r.top_k, goal, s);
  }
  const auto weight_in = [&](uint64_t word) { return weights.of(value_of(key_in(word))); };
  const auto mass_of_list = [&](int count) {
    uint64_t mine = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) mine += weight_in(s.list[i]);
    return block_total(mine, s.scratch);
  };
  if (r.top_p < 1) {
    if (kept.listed > 0) {
      const auto wanted = static_cast<uint64_t>(ceil(r.top_p * static_cast<double>(mass_of_list(kept.listed))));
      kept.listed = list_reaches(s, kept.listed, max(wanted, uint64_t{1}), weight_in) + 1;
    } else {
      const Goal goal{true, r.top_p, weights};
      select_first(row, kept, top_key, stats.best_key, blockDim.x / 4, goal, s);
    }
  }
  const double uniform = sample_uniform(r.seed, r.position);
  const auto target_of = [&](uint64_t total) { return min(static_cast<uint64_t>(uniform * static_cast<double>(total)), total - 1); };
  if (kept.listed > 0) {
    const int count = kept.listed;
    for (int i = threadIdx.x; i < count; i += blockDim.x)  // by id
      s.list[i] = static_cast<uint64_t>(static_cast<uint32_t>(id_in(s.list[i]))) << 32 | key_in(s.list[i]);
    sort_list(s.list, count);
    const auto weight_by_id = [&](uint64_t word) { return weights.of(value_of(static_cast<uint32_t>(word))); };
    uint64_t mine = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) mine += weight_by_id(s.list[i]);
    const uint64_t total = block_total(mine, s.scratch);
    const int at = list_reaches(s, count, target_of(total) + 1, weight_by_id);
    return static_cast<int32_t>(s.list[at] >> 32);
  }
  const auto weight = [&](float v, int32_t id) { return kept.cut.keeps(key_of(v), id) ? weights.of(v) : 0; };
  const uint64_t total = sum_by_warp(row, weight, s.warp_sums);
  return walk(row, weight, target_of(total), s.warp_sums, &s.found);
}

// Writes the most likely tokens to the record; returns how many.
__device__ int32_t write_top(const LogitRow& row, const RowStats& stats, int32_t wanted, int32_t* record, Selection& s) {
  if (wanted <= 0) return 0;
  const uint32_t top_key = key_of(stats.top);
  Kept kept{{key_of(-INFINITY) + 1, INT32_MAX}, -1};
  const Goal goal{false, static_cast<double>(wanted), {}};
  select_first(row, kept, top_key, stats.best_key, wanted, goal, s);
  int32_t count = kept.listed;
  if (count < 0) {  // the cut came from a bracket, or all but a few are -inf
    count = gather(row, kept.cut, kept.cut.key, top_key + 1, goal, s).count;
    sort_list(s.list, count);
  }
  for (int i = threadIdx.x; i < count; i += blockDim.x) {
    record[8 + 2 * i] = id_in(s.list[i]);
    record[9 + 2 * i] = __float_as_int(value_of(key_in(s.list[i])) - stats.log_total);
  }
  __syncthreads();
  return count;
}

__device__ void sample_one(const SampleCall& call, int r, Selection& s) {
  SampleRow row;
  const bool real = read_row(call, r, row);
  LogitRow logits{call.logits + r * call.stride, call.vocab, false};
  logits.vectors = reinterpret_cast<uintptr_t>(logits.y) % 16 == 0;
  float* scratch = call.scratch + static_cast<int64_t>(blockIdx.x) * (call.vocab + call.biases);
  const Before before{scratch, scratch + call.vocab};
  int32_t* record = call.out + static_cast<int64_t>(r) * kSampleOut;

  for (int i = threadIdx.x; i < kSampleOut; i += blockDim.x) record[i] = 0;
  __syncthreads();
  int32_t token = -1, status = kSampleVoid, top_count = 0;
  float logprob = 0;
  if (real) {
    const bool want_logprobs = row.top_logprobs >= 0;
    const RowStats raw = row_stats(logits, want_logprobs, s.scratch);
    RowStats stats = raw;
    status = raw.usable ? kSampleOk : kSampleBadLogits;
    const bool adjusted = row.bias_count > 0 || row.penalized();
    if (raw.usable) top_count = write_top(logits, raw, row.top_logprobs, record, s);
    if (raw.usable && adjusted) {
      if (!adjust(call, row, logits.y, before, s.scratch)) status = kSampleVoid;
      else if (stats = row_stats(logits, false, s.scratch); !stats.usable) status = kSampleBadLogits;
    }
    if (status == kSampleOk) {
      token = row.temperature > 0 ? draw(logits, row, stats, s) : stats.top_id;
      if (want_logprobs)
        logprob = (adjusted ? raw_logit(row, logits.y, before, token, s.scratch) : logits.y[token]) - raw.log_total;
    }
  }
  __syncthreads();
  if (status != kSampleOk)
    for (int i = threadIdx.x; i < kSampleOut; i += blockDim.x) record[i] = 0;
  __syncthreads();
  if (threadIdx.x != 0) return;
  record[0] = row.slot;
  record[1] = row.position;
  record[2] = token;
  record[3] = row.epoch;
  record[4] = __float_as_int(logprob);
  record[5] = status == kSampleOk ? top_count : 0;
  record[6] = status;
  if (status == kSampleOk) row.history[row.position] = token;
}

__global__ void __launch_bounds__(kMaxThreads, 1) sample_kernel(SampleCall call) {
  __shared__ Selection selection;
  wait_for_previous_kernel();
  let_next_kernel_start();
  for (int r = blockIdx.x; r < call.count; r += gridDim.x) {
    __syncthreads();
    sample_one(call, r, selection);
  }
}

void sample_cuda(const Sample& p, Context& context) {
  SampleCall call{.logits = p.logits.data<float>(),
                  .stride = p.logits.stride[0],
                  .rows = p.rows.data<int32_t>(),
                  .params = p.params.data<int32_t>(),
                  .bias_ids = p.bias_ids.data<int32_t>(),
                  .bias_values = p.bias_values.data<float>(),
                  .history = p.history.data<int32_t>(),
                  .bias_stride = p.bias_ids.stride[0],
                  .value_stride = p.bias_values.stride[0],
                  .history_stride = p.history.stride[0],
                  .out = p.out.data<int32_t>(),
                  .scratch = nullptr,
                  .count = static_cast<int32_t>(p.count()),
                  .vocab = static_cast<int32_t>(p.vocab()),
                  .slots = static_cast<int32_t>(p.params.shape[0]),
                  .biases = static_cast<int32_t>(p.bias_ids.shape[1]),
                  .max_length = static_cast<int32_t>(p.history.shape[1]),
                  .fault = fault_of(context)};
  const int blocks = std::min(call.count, kMaxBlocks);
  call.scratch = static_cast<float*>(context.scratch(sizeof(float) * blocks * (call.vocab + call.biases)));
  const int threads = std::clamp<int>(std::bit_ceil(static_cast<uint32_t>(ceil_div(call.vocab, 16))), 32, kMaxThreads);
  launch(context, sample_kernel, {.blocks = blocks, .threads = threads, .dependent = true}, call);
}

EDGEWISE_CUDA_KERNEL(Sample, sample_cuda);

}  // namespace
}  // namespace edgewise::cuda
