// tag_update: applies a step's tag records (core/page_tags.h) to the page side and the request side. Tags are computed
// here, for each side from its own record.
//   updates   i32 [n]                       [ count, 0 x 7 | count records of 8 words ]; what lies beyond is ignored
//   secret    i32 [2]                       of the process
//   pages     i32 [pages, 8]
//   expected  i32 [slots, max_pages, 8]
//   slots     i32 [slots, 4]
// An index that does not exist fails the kernel.
#pragma once

#include "core/op.h"
#include "core/page_tags.h"

namespace edgewise {

struct TagUpdateArgs {
  Tensor updates, secret, pages, expected, slots;
};

inline TagUpdateArgs parse_tag_update(const Args& a) {
  TagUpdateArgs p;
  p.updates = a.dense("updates", {DType::i32}, {-1});
  p.secret = a.dense("secret", {DType::i32}, {2});
  p.pages = a.dense("pages", {DType::i32}, {-1, kTagPageWords});
  p.slots = a.dense("slots", {DType::i32}, {-1, kTagSlotWords});
  p.expected = a.dense("expected", {DType::i32}, {p.slots.shape[0], -1, kTagExpectedWords});
  if (p.updates.shape[0] < kTagUpdateWords) throw OpError("updates", "has no room for the count");
  return p;
}

}  // namespace edgewise
