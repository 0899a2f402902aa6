// The rows of an attention call on the device (core/kv_read.h), read and checked there: a graph replays with other rows.
#pragma once

#include "core/kv_read.h"
#include "cuda/device_code.cuh"

namespace edgewise::cuda {

// A row of the step; see KvRow.
struct DeviceRow {
  int begin = 0, count = 0, past = 0;
  bool live = false;
  const int32_t* pages = nullptr;
};

struct DeviceRows {
  const int32_t *page_table, *row_slot, *row_start, *kv_len;
  int64_t table_stride;
  int rows, slots, max_pages, tokens;
  int pages;  // of the pool

  DeviceRows(const KvRows& r, int64_t tokens_, int64_t pages_)
      : page_table(r.page_table.data<int32_t>()), row_slot(r.row_slot.data<int32_t>()),
        row_start(r.row_start.data<int32_t>()), kv_len(r.kv_len.data<int32_t>()), table_stride(r.page_table.stride[0]),
        rows(static_cast<int>(r.count())), slots(static_cast<int>(r.page_table.shape[0])),
        max_pages(static_cast<int>(r.page_table.shape[1])), tokens(static_cast<int>(tokens_)),
        pages(static_cast<int>(pages_)) {}

  // A row whose indices are bad is reported and not live.
  __device__ DeviceRow row(int i, Fault fault) const {
    DeviceRow row;
    const int begin = row_start[i], end = row_start[i + 1], length = kv_len[i];
    const auto bad = [&](int value) {
      raise(fault, FaultCode::bad_index, value);
      return DeviceRow{};
    };
    if (begin < 0 || end < begin || end > tokens) return bad(end);
    row.begin = begin;
    row.count = end - begin;
    row.live = length != 0 && row.count > 0;
    if (!row.live) return row;
    row.past = length - row.count;
    if (row.past < 0) return bad(length);
    if (row.past > 0) {
      const int slot = row_slot[i];
      if (slot < 0 || slot >= slots) return bad(slot);
      if ((row.past + kPageTokens - 1) / kPageTokens > max_pages || pages == 0) return bad(length);
      row.pages = page_table + slot * table_stride;
    }
    return row;
  }

  // The page that holds positions 64 i .. 64 i + 63 of a row. A bad one is reported and becomes page 0.
  __device__ int page(const DeviceRow& row, int i, Fault fault) const {
    const int page = row.pages[i];
    if (page >= 0 && page < pages) return page;
    raise(fault, FaultCode::bad_index, page);
    return 0;
  }

  // The row that a token belongs to, or -1.
  __device__ int row_of(int token) const {
    int low = 0, high = rows;  // the first row that starts behind the token lies in low .. high
    while (low < high) {
      const int middle = (low + high) / 2;
      if (row_start[middle] > token) high = middle;
      else low = middle + 1;
    }
    return low > 0 && token < row_start[low] ? low - 1 : -1;
  }

  // Every row, by the threads of one block: also rows without tokens are checked.
  __device__ void check(Fault fault) const {
    for (int i = threadIdx.x; i < rows; i += blockDim.x) row(i, fault);
  }
};

}  // namespace edgewise::cuda
