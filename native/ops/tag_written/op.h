// tag_written: enters on the page side what a step has written, once its kernels that write have run in the stream. A
// page that is read before it is full, or before it is written at all, then fails the check of a later step.
//   write_slots  i32 [T]         page * 64 + offset of each token, ascending within a row; -1: not written
//   pages        i32 [pages, 8]  the `written` word of each page that got tokens: their number
// A page is written by one row of a step only.
#pragma once

#include "core/kv_layout.h"
#include "core/op.h"
#include "core/page_tags.h"

namespace edgewise {

struct TagWritten {
  Tensor write_slots, pages;
  int64_t tokens;
};

inline TagWritten parse_tag_written(const Args& a) {
  TagWritten p;
  p.write_slots = a.dense("write_slots", {DType::i32}, {-1});
  p.tokens = p.write_slots.shape[0];
  p.pages = a.dense("pages", {DType::i32}, {-1, kTagPageWords});
  return p;
}

// The last token of its page in this step: the next one does not follow it there.
constexpr bool last_in_page(const int32_t* slots, int64_t t, int64_t tokens) {
  return t + 1 == tokens || slots[t] % kPageTokens == kPageTokens - 1 || slots[t + 1] != slots[t] + 1;
}

}  // namespace edgewise
