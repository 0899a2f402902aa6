import { PLAN_LAYOUT as L, PlanWriter, planCapacity } from "../../gpu-node/engine/plan.ts";
import { TAG_LAYOUT as T } from "../../gpu-node/kv/tag-layout.ts";
import type { OpCase, OpCases, OracleInput } from "./harness.ts";
import { expectedRecord, i32, pageRecord } from "./tags.ts";

const limits = { slots: 3, maxPages: 200, maxLen: 12_800, pages: 400, vocab: 90, maxTokens: 512, maxRows: 5 };
const SALT = [77, -5];
const OTHER = [78, -5];
const STEP = 2 ** 33 + 5;

/** Three sequences that agree with their pages: of 130, 64 * 150 + 1 and 20 past tokens; slot s has epoch 11 + s. */
function world() {
  const pastOf = [130, 64 * 150 + 1, 20];
  const table = new Int32Array(limits.slots * limits.maxPages);
  const expected = new Int32Array(table.length * T.expected_words);
  const pages = new Int32Array(limits.pages * T.page_words);
  const slots = new Int32Array(limits.slots * T.slot_words);
  let next = 1;
  for (const [slot, past] of pastOf.entries()) {
    slots[slot * T.slot_words] = 11 + slot;
    for (let i = 0; 64 * i < past + 70; i++, next++) {
      const generation = 2 * next + 1;
      table[slot * limits.maxPages + i] = next;
      expected.set(
        expectedRecord(next, generation, SALT, 11 + slot),
        (slot * limits.maxPages + i) * T.expected_words,
      );
      const written = Math.max(0, Math.min(64, past - 64 * i));
      pages.set(pageRecord(next, generation, SALT, written), next * T.page_words);
    }
  }
  return { pastOf, table, expected, pages, slots };
}

type World = ReturnType<typeof world>;

/** An extend row of slot 0, decode rows of slots 1 and 2, a void row and one of padding. */
function caseOf(name: string, change: (w: World) => void): OpCase {
  const w = world();
  change(w);
  const writer = new PlanWriter(limits);
  writer.begin(STEP);
  writer.row(0, 66, w.pastOf[0], true, 11, 1);
  writer.endExtend();
  writer.row(1, 1, w.pastOf[1], true, 12, 1);
  writer.row(2, 1, w.pastOf[2], true, 13, 1);
  writer.row(-1, 1, 0, true, 0, 0);
  const plan = new Int32Array(planCapacity(limits));
  plan.set(writer.finish());
  const { slots, maxPages } = limits;
  return {
    name,
    args: {
      plan: i32([plan.length], plan),
      page_table: i32([slots, maxPages], w.table),
      pages: i32([limits.pages, T.page_words], w.pages),
      expected: i32([slots, maxPages, T.expected_words], w.expected),
      slots: i32([slots, T.slot_words], w.slots),
      row_start: i32([6], [0, 66, 67, 68, 69, 70]),
      kv_len: i32([5], [w.pastOf[0] + 66, w.pastOf[1] + 1, w.pastOf[2] + 1, 0, 0]),
      write_slots: i32(
        [70],
        Array.from({ length: 70 }, (_, i) => (i < 68 ? 64 + i : -1)),
      ),
      verdicts: i32([6, T.verdict_words], new Array(6 * T.verdict_words).fill(-7)),
    },
  };
}

// The same questions, asked of one page after the other in words.
function oracle({ tensors }: OracleInput): Record<string, number[]> {
  const [slots, kv_len, write_slots] = [tensors.slots, tensors.kv_len, tensors.write_slots].map((t) => [
    ...t.data,
  ]);
  const { plan, page_table: table, expected: wanted, pages, row_start: start } = tensors;
  const verdicts = [...tensors.verdicts.data];
  for (let r = 0; r < 5; r++) {
    const v = new Array(T.verdict_words).fill(0);
    v[T.v_step] = STEP | 0;
    v[T.v_step_high] = 2;
    v[T.v_status] = T.status_void;
    const [slot, fresh, past, , epoch] = plan.data.subarray(plan.data[L.h_rows_offset] + 8 * r);
    if (r < 3) {
      [v[T.v_slot], v[T.v_epoch], v[T.v_logical], v[T.v_status]] = [slot, epoch, -1, T.status_ok];
      let cause = 0;
      if (slots[4 * slot] !== epoch) cause = T.cause_epoch;
      else if (slots[4 * slot + 1] !== 0) cause = T.cause_before;
      for (let i = 0; cause === 0 && 64 * i < past + fresh; i++) {
        const page = table.data[slot * limits.maxPages + i];
        const exists = page >= 1 && page < limits.pages;
        const e = wanted.data.subarray(8 * (slot * limits.maxPages + i));
        const p = pages.data.subarray(exists ? 8 * page : 0);
        if (!exists) cause = T.cause_range;
        else if (e[5] !== epoch) cause = T.cause_epoch;
        else if (e[0] !== page) cause = T.cause_mapping;
        else if (e[3] !== p[2]) cause = T.cause_generation;
        else if (e[4] !== p[3]) cause = T.cause_owner;
        else if (e[1] !== p[0] || e[2] !== p[1]) cause = T.cause_tag;
        else if (p[4] < Math.min(64, past - 64 * i)) cause = T.cause_written;
        v[T.v_checked]++;
        if (cause > 0) v.splice(T.v_logical, 9, i, e[0], page, e[3], p[2], e[1], e[2], p[0], p[1]);
      }
      if (cause > 0) {
        [v[T.v_status], v[T.v_cause], kv_len[r]] = [T.status_failed, cause, 0];
        slots[4 * slot + 1] = cause;
        write_slots.fill(-1, start.data[r], start.data[r + 1]);
      }
    }
    verdicts.splice(T.verdict_words * r, T.verdict_words, ...v);
  }
  return { slots, kv_len, write_slots, verdicts };
}

const entry = (slot: number, logical: number) => slot * limits.maxPages + logical;

export default {
  op: "page_tags",
  oracle,
  cases: [
    caseOf("all rows agree", () => {}),
    caseOf("a page table's entry changed, the last of many pages", (w) => {
      w.table[entry(1, 150)] = 2;
    }),
    caseOf("an entry of 0, and one beyond the pool", (w) => {
      w.table[entry(0, 1)] = 0;
      w.table[entry(1, 3)] = limits.pages;
    }),
    caseOf("two pages of a row changed: the first one is told", (w) => {
      w.table[entry(1, 140)] = 7;
      w.table[entry(1, 9)] = 7;
    }),
    caseOf("the page was issued anew", (w) => {
      const page = w.table[entry(0, 0)];
      w.pages.set(pageRecord(page, 99, SALT, 64), page * T.page_words);
    }),
    caseOf("the page was freed", (w) => {
      const page = w.table[entry(2, 0)];
      w.pages.set([0, 0, 4, 0, 0], page * T.page_words);
    }),
    caseOf("the same generation in another account", (w) => {
      const page = w.table[entry(0, 0)];
      w.pages.set(pageRecord(page, 2 * page + 1, OTHER, 64), page * T.page_words);
    }),
    caseOf("accounts whose owner words agree differ by tag", (w) => {
      const page = w.table[entry(0, 1)];
      w.pages.set(pageRecord(page, 2 * page + 1, [SALT[0], 9], 64), page * T.page_words);
    }),
    caseOf("a page that is read and was not written in full", (w) => {
      w.pages[w.table[entry(0, 1)] * T.page_words + T.page_written] = 63;
    }),
    caseOf("expectations of an earlier stay in the slot", (w) => {
      w.expected[entry(2, 0) * T.expected_words + 5] = 3;
      w.slots[1 * T.slot_words] = 3;
    }),
    caseOf("a slot that failed before", (w) => {
      w.slots[2 * T.slot_words + 1] = T.cause_tag;
    }),
    caseOf("two tables swapped", (w) => {
      const table = w.table.slice();
      w.table.copyWithin(0, entry(1, 0), entry(2, 0));
      w.table.set(table.subarray(0, entry(1, 0)), entry(1, 0));
    }),
  ],
  bad: [
    {
      name: "rows beyond the plan",
      args: { plan: i32([16], [0, 0, 16, 1, 0, 0, 4, 4, 0, 0, 4, 0, 16, 0, 0, 0]) },
      error: /^(plan: rows are out of range|index out of range)/,
    },
    {
      name: "fewer verdicts than rows",
      args: { verdicts: { dtype: "i32", shape: [4, 16] } },
      error: /^verdicts: has fewer rows/,
    },
    {
      name: "a page record of 4 words",
      args: { pages: { dtype: "i32", shape: [400, 4] } },
      error: /^pages: must be/,
    },
  ],
} satisfies OpCases;
