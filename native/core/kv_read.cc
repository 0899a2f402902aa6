#include "core/kv_read.h"

#include <cstring>

namespace edgewise {

void check_kv_rows(const KvRows& r, int64_t tokens, int64_t pages, KvRow* out) {
  const auto fail = [](int64_t row, const std::string& what) {
    throw std::runtime_error("row " + std::to_string(row) + ": " + what);
  };
  const int64_t slots = r.page_table.shape[0], max_pages = r.page_table.shape[1];
  const int32_t *start = r.row_start.data<int32_t>(), *len = r.kv_len.data<int32_t>();
  for (int64_t i = 0; i < r.count(); ++i) {
    KvRow row;
    row.begin = start[i];
    row.count = static_cast<int64_t>(start[i + 1]) - start[i];
    if (row.begin < 0 || row.count < 0 || start[i + 1] > tokens)
      fail(i, "row_start is not an ascending list of tokens");
    row.live = len[i] != 0 && row.count > 0;
    row.past = row.live ? len[i] - row.count : 0;
    if (row.past < 0) fail(i, "kv_len " + std::to_string(len[i]) + " is less than its new tokens");
    if (row.past > 0) {
      const int32_t slot = r.row_slot.data<int32_t>()[i];
      if (slot < 0 || slot >= slots) fail(i, "slot " + std::to_string(slot) + " is out of range");
      const int64_t used = (row.past + kPageTokens - 1) / kPageTokens;
      if (used > max_pages) fail(i, "kv_len " + std::to_string(len[i]) + " exceeds the page table");
      row.pages = r.page_table.data<int32_t>() + slot * r.page_table.stride[0];
      for (int64_t p = 0; p < used; ++p)
        if (row.pages[p] < 0 || row.pages[p] >= pages)
          fail(i, "page " + std::to_string(row.pages[p]) + " is out of range");
    }
    out[i] = row;
  }
}

void find_dead_tokens(const KvRow* rows, int64_t count, int64_t tokens, uint8_t* dead) {
  std::memset(dead, 1, static_cast<size_t>(tokens));
  for (int64_t i = 0; i < count; ++i)
    if (rows[i].live) std::memset(dead + rows[i].begin, 0, static_cast<size_t>(rows[i].count));
}

}  // namespace edgewise
