// The only kernel of the CPU backends: a step has few records, and most steps none.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "ops/tag_update/op.h"

namespace edgewise {
namespace {

int32_t checked(const char* what, int32_t index, int64_t size) {
  if (index < 0 || index >= size)
    throw std::runtime_error(std::string("updates: ") + what + " " + std::to_string(index) + " is out of range");
  return index;
}

void apply(const TagUpdateArgs& p, const int32_t* record) {
  const int32_t* secret_words = p.secret.data<int32_t>();
  const uint64_t secret = tag_words(secret_words[0], secret_words[1]);
  const int64_t slots = p.slots.shape[0], max_pages = p.expected.shape[1], pages = p.pages.shape[0];
  const auto tag_of = [&](int32_t page, int32_t generation, const int32_t* salt) {
    return page_tag(secret, page, generation, tag_words(salt[0], salt[1]));
  };
  switch (record[0]) {
    case kTagNothing: return;
    case kTagIssue:
    case kTagRetire: {
      const int32_t page = checked("page", record[1], pages), generation = record[2];
      const uint64_t tag = record[0] == kTagIssue ? tag_of(page, generation, record + 3) : 0;
      const int32_t words[kTagPageWords] = {static_cast<int32_t>(tag), static_cast<int32_t>(tag >> 32), generation,
                                            record[0] == kTagIssue ? record[3] : 0};
      std::copy_n(words, kTagPageWords, p.pages.data<int32_t>() + int64_t{page} * kTagPageWords);
      return;
    }
    case kTagBegin: {
      const int32_t words[kTagSlotWords] = {record[2]};
      std::copy_n(words, kTagSlotWords, p.slots.data<int32_t>() + int64_t{checked("slot", record[1], slots)} * kTagSlotWords);
      return;
    }
    case kTagBind: {
      const int64_t at = checked("slot", record[1], slots) * max_pages + checked("logical page", record[2], max_pages);
      const int32_t page = checked("page", record[3], pages), generation = record[4];
      const uint64_t tag = tag_of(page, generation, record + 5);
      const int32_t words[kTagExpectedWords] = {page, static_cast<int32_t>(tag), static_cast<int32_t>(tag >> 32),
                                                generation, record[5], record[7]};
      std::copy_n(words, kTagExpectedWords, p.expected.data<int32_t>() + at * kTagExpectedWords);
      return;
    }
  }
  throw std::runtime_error("updates: kind " + std::to_string(record[0]) + " is out of range");
}

void tag_update_reference(const TagUpdateArgs& p, Context&) {
  const int32_t* updates = p.updates.data<int32_t>();
  const int32_t count = checked("count", updates[0], p.updates.shape[0] / kTagUpdateWords);
  for (int32_t i = 1; i <= count; ++i) apply(p, updates + int64_t{i} * kTagUpdateWords);
}

}  // namespace

EDGEWISE_OP(tag_update, TagUpdateArgs, parse_tag_update, tag_update_reference,
            {{"updates", ArgKind::in}, {"secret", ArgKind::in}, {"pages", ArgKind::inout},
             {"expected", ArgKind::inout}, {"slots", ArgKind::inout}});

}  // namespace edgewise
