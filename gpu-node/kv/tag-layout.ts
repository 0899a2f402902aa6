// Words of the tag records, by the names under which native/core/page_tags.h exports them; a test compares the two.

export const TAG_LAYOUT = {
  // page side, [pages, page_words]: tag (low, high), generation, owner, tokens written
  page_tag: 0,
  page_generation: 2,
  page_owner: 3,
  page_written: 4,
  page_words: 8,
  // request side, [slots, maxPages, expected_words]: page, tag (low, high), generation, owner, epoch
  expected_words: 8,
  // [slots, slot_words]: epoch, cause of a failure
  slot_words: 4,
  // updates: [ count, 0 x 7 | records of update_words ]
  nothing: 0,
  issue: 1,
  retire: 2,
  begin: 3,
  bind: 4,
  update_words: 8,
  // verdicts, one per row of the step; 64-bit values as low, high
  v_step: 0,
  v_step_high: 1,
  v_status: 2,
  v_cause: 3,
  v_slot: 4,
  v_epoch: 5,
  v_logical: 6,
  v_page: 7,
  v_found_page: 8,
  v_generation: 9,
  v_found_generation: 10,
  v_tag: 11,
  v_found_tag: 13,
  v_checked: 15,
  verdict_words: 16,
  status_unchecked: 0,
  status_ok: 1,
  status_failed: 2,
  status_void: 3,
  cause_range: 1,
  cause_before: 2,
  cause_epoch: 3,
  cause_mapping: 4,
  cause_generation: 5,
  cause_owner: 6,
  cause_tag: 7,
  cause_written: 8,
} as const;

/** Names of the causes by their number; `unchecked` is no cause of the device: its verdict is missing or old. */
export const TAG_CAUSES = [
  "unchecked",
  "range",
  "before",
  "epoch",
  "mapping",
  "generation",
  "owner",
  "tag",
  "written",
] as const;

export type TagCause = (typeof TAG_CAUSES)[number];

const MASK = (1n << 64n) - 1n;

function mix(x: bigint): bigint {
  let h = x & MASK;
  h = ((h ^ (h >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  h = ((h ^ (h >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return h ^ (h >> 31n);
}

/** The tag as the device computes it, for tests and for explaining incidents: never in the engine's loop. */
export function pageTag(secret: bigint, page: number, generation: number, salt: bigint): bigint {
  const identity = (BigInt(generation >>> 0) << 32n) | BigInt(page);
  const tag = mix(mix(secret + 0x9e3779b97f4a7c15n + identity) ^ salt);
  return tag === 0n ? 1n : tag;
}

/** A 64-bit value from its two words. */
export function wide(low: number, high: number): bigint {
  return (BigInt(high >>> 0) << 32n) | BigInt(low >>> 0);
}
