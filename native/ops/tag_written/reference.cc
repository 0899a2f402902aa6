// The only kernel of the CPU backends: one word a token.
#include "ops/tag_written/op.h"

namespace edgewise {

static void tag_written_reference(const TagWritten& p, Context&) {
  const int32_t* slots = p.write_slots.data<int32_t>();
  for (int64_t t = 0; t < p.tokens; ++t) {
    check_slot(slots[t], p.pages.shape[0]);
    if (slots[t] < 0 || !last_in_page(slots, t, p.tokens)) continue;
    int32_t* page = p.pages.data<int32_t>() + slots[t] / kPageTokens * int64_t{kTagPageWords};
    page[kTagPageWritten] = slots[t] % kPageTokens + 1;
  }
}

EDGEWISE_OP(tag_written, TagWritten, parse_tag_written, tag_written_reference,
            {{"write_slots", ArgKind::in}, {"pages", ArgKind::inout}});

}  // namespace edgewise
