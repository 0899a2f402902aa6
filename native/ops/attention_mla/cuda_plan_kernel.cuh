// The kernel that makes the plan, in one block.
#pragma once

#include "ops/attention_mla/cuda_plan.cuh"

namespace edgewise::cuda {

constexpr int kPlanThreads = 256;

static __global__ void __launch_bounds__(kPlanThreads) mla_plan_kernel(MlaArgs a, Window w, MlaPlan plan, Fault fault) {
  __shared__ int units[kPlanThreads], items[kPlanThreads];
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int thread = threadIdx.x, R = a.rows.rows;

  const auto work = [&](int r) {
    RowWork out{};
    const DeviceRow row = a.rows.row(r, fault);
    if (!row.live) return out;
    out.first = row.begin;
    out.begin = max(row.begin, w.first);
    out.count = max(0, min(row.begin + row.count, w.end) - out.begin);
    out.past = row.past;
    if (row.past > 0) out.slot = a.rows.row_slot[r];
    if (out.count > 0) out.items = ceil_of(ceil_of(row.past, kPageTokens), w.chunk);
    return out;
  };
  // Each thread has neighbouring rows; then a running sum over the threads.
  const int each = ceil_of(R, kPlanThreads), begin = min(R, thread * each), end = min(R, begin + each);
  int my_units = 0, my_items = 0;
  for (int r = begin; r < end; ++r) {
    const RowWork row = work(r);
    const int n = units_of(row, a.heads, w.columns);
    my_units += n;
    my_items += n * row.items;
    plan.rows[r] = row;
  }
  units[thread] = my_units, items[thread] = my_items;
  for (int step = 1; step < kPlanThreads; step *= 2) {
    __syncthreads();
    const int u = thread >= step ? units[thread - step] : 0, i = thread >= step ? items[thread - step] : 0;
    __syncthreads();
    units[thread] += u, items[thread] += i;
  }
  __syncthreads();
  const int total = items[kPlanThreads - 1];
  int unit = units[thread] - my_units, item = items[thread] - my_items;
  for (int r = begin; r < end; ++r) {
    RowWork& row = plan.rows[r];
    row.unit = unit, row.item = item;
    const int n = units_of(row, a.heads, w.columns);
    unit += n, item += n * row.items;
  }
  if (thread == 0) *plan.items = total;
  __syncthreads();

  const int busy = busy_blocks(w, total);
  for (int b = thread; b < w.blocks; b += kPlanThreads) {
    BlockWork out{};
    if (b < busy) {
      const int from = static_cast<int>(int64_t{total} * b / busy), to = static_cast<int>(int64_t{total} * (b + 1) / busy);
      int low = 0, high = R;  // the last row that starts at or before `from` is low, or lies behind it below high
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (plan.rows[middle].item <= from) low = middle;
        else high = middle;
      }
      out.work = plan.rows[low];
      out.row = low;
      out.group = (from - out.work.item) / out.work.items;
      out.item = (from - out.work.item) % out.work.items;
      out.items = to - from;
      for (int i = 0; i < kFirstPages; ++i)
        if (const int page = out.item * w.chunk + i; page * kPageTokens < out.work.past)
          out.pages[i] = page_id(a.rows, out.work.slot, page, fault);
    }
    plan.blocks[b] = out;
  }
  for (int t = w.first + thread; t < w.end; t += kPlanThreads) {
    const int row = a.rows.row_of(t);
    plan.token_row[t - w.first] = row >= 0 && plan.rows[row].count > 0 ? row : -1;
  }
}

}  // namespace edgewise::cuda
