// Page tags: who may read which page. gpu-node/kv/tag-layout.ts has the same constants; a test compares the two.
//
//   page side      i32 [pages, 8]            what a page is now: tag, generation, owner, tokens written
//   request side   i32 [slots, max_pages, 8] what a sequence was granted: page, tag, generation, owner, epoch
//   slots          i32 [slots, 4]            the epoch of a slot's stay, and the cause when it has failed
//
// The two sides are written from different records (tag_update) and compared before the pages are read (page_tags). A
// tag is computed on each side from what that side was told, the account's salt included, so that a page of another
// account, or of an earlier grant, can't agree.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace edgewise {

enum TagPageWord { kTagPageTag, kTagPageTagHigh, kTagPageGeneration, kTagPageOwner, kTagPageWritten, kTagPageWords = 8 };

enum TagExpectedWord {
  kTagExpectedPage,
  kTagExpectedTag,
  kTagExpectedTagHigh,
  kTagExpectedGeneration,
  kTagExpectedOwner,
  kTagExpectedEpoch,
  kTagExpectedWords = 8,
};

enum TagSlotWord { kTagSlotEpoch, kTagSlotFailed, kTagSlotWords = 4 };

// Updates: [ count, 0 x 7 | records of 8 words ]; no two records of one call change the same words.
//   issue   [kind, page, generation, salt, salt high]                                  the page's new identity, nothing written
//   retire  [kind, page, generation]                                                   the page is nobody's: tag and owner 0
//   begin   [kind, slot, epoch]                                                        a new stay, not failed
//   bind    [kind, slot, logical page, page, generation, salt, salt high, epoch]       an entry of the request side
enum TagUpdate { kTagNothing, kTagIssue, kTagRetire, kTagBegin, kTagBind, kTagUpdateWords = 8 };

// One per row of a step.
enum TagVerdictWord {
  kVerdictStep,
  kVerdictStepHigh,
  kVerdictStatus,
  kVerdictCause,
  kVerdictSlot,
  kVerdictEpoch,
  kVerdictLogical,  // of the first page that failed, as are the words that follow; -1: none of its pages
  kVerdictPage,
  kVerdictFoundPage,
  kVerdictGeneration,
  kVerdictFoundGeneration,
  kVerdictTag,
  kVerdictTagHigh,
  kVerdictFoundTag,
  kVerdictFoundTagHigh,
  kVerdictChecked,  // pages that were compared
  kVerdictWords = 16,
};

enum TagStatus { kTagUnchecked, kTagOk, kTagFailed, kTagVoid };

// In the order in which they are looked for.
enum TagCause {
  kCauseNone,
  kCauseRange,       // a slot, page or page count that does not exist
  kCauseBefore,      // an earlier step of this stay has failed
  kCauseEpoch,       // the slot or the entry belongs to another stay
  kCauseMapping,     // the page table names another page than the one granted
  kCauseGeneration,  // the page was given to someone else, or freed
  kCauseOwner,       // the page is another account's
  kCauseTag,
  kCauseWritten,     // tokens are to be read that were not written
};

// splitmix64's finalizer (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
constexpr uint64_t tag_mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Never 0, the tag of a page that is nobody's.
constexpr uint64_t page_tag(uint64_t secret, uint32_t page, uint32_t generation, uint64_t salt) {
  const uint64_t identity = static_cast<uint64_t>(generation) << 32 | page;
  const uint64_t tag = tag_mix(tag_mix(secret + 0x9e3779b97f4a7c15ull + identity) ^ salt);
  return tag == 0 ? 1 : tag;
}

constexpr uint64_t tag_words(int32_t low, int32_t high) {
  return static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low);
}

// Every constant by the name that tag-layout.ts gives it.
std::vector<std::pair<std::string, int64_t>> tag_layout();

}  // namespace edgewise
