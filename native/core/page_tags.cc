#include "core/page_tags.h"

namespace edgewise {

std::vector<std::pair<std::string, int64_t>> tag_layout() {
  return {
      {"page_tag", kTagPageTag},
      {"page_generation", kTagPageGeneration},
      {"page_owner", kTagPageOwner},
      {"page_written", kTagPageWritten},
      {"page_words", kTagPageWords},
      {"expected_words", kTagExpectedWords},
      {"slot_words", kTagSlotWords},
      {"nothing", kTagNothing},
      {"issue", kTagIssue},
      {"retire", kTagRetire},
      {"begin", kTagBegin},
      {"bind", kTagBind},
      {"update_words", kTagUpdateWords},
      {"v_step", kVerdictStep},
      {"v_step_high", kVerdictStepHigh},
      {"v_status", kVerdictStatus},
      {"v_cause", kVerdictCause},
      {"v_slot", kVerdictSlot},
      {"v_epoch", kVerdictEpoch},
      {"v_logical", kVerdictLogical},
      {"v_page", kVerdictPage},
      {"v_found_page", kVerdictFoundPage},
      {"v_generation", kVerdictGeneration},
      {"v_found_generation", kVerdictFoundGeneration},
      {"v_tag", kVerdictTag},
      {"v_found_tag", kVerdictFoundTag},
      {"v_checked", kVerdictChecked},
      {"verdict_words", kVerdictWords},
      {"status_unchecked", kTagUnchecked},
      {"status_ok", kTagOk},
      {"status_failed", kTagFailed},
      {"status_void", kTagVoid},
      {"cause_range", kCauseRange},
      {"cause_before", kCauseBefore},
      {"cause_epoch", kCauseEpoch},
      {"cause_mapping", kCauseMapping},
      {"cause_generation", kCauseGeneration},
      {"cause_owner", kCauseOwner},
      {"cause_tag", kCauseTag},
      {"cause_written", kCauseWritten},
  };
}

}  // namespace edgewise
