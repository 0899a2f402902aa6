import { TAG_LAYOUT as T } from "../../gpu-node/kv/tag-layout.ts";
import { ints, type OpCase, type OpCases, type OracleInput } from "./harness.ts";
import { expectedRecord, i32, pageRecord, SECRET, updatesOf } from "./tags.ts";

const PAGES = 6;
const SLOTS = 3;
const MAX_PAGES = 4;
const SALT = [77, -5];

function caseOf(name: string, records: number[][], room = 0): OpCase {
  const updates = updatesOf(records, room);
  const old = (...shape: number[]) => ({ dtype: "i32", shape, fill: ints(-9, 9) }) as const;
  return {
    name,
    args: {
      updates: i32([updates.length], updates),
      secret: i32([2], SECRET),
      pages: old(PAGES, T.page_words),
      expected: old(SLOTS, MAX_PAGES, T.expected_words),
      slots: old(SLOTS, T.slot_words),
    },
  };
}

function oracle({ tensors }: OracleInput): Record<string, number[]> {
  const [pages, expected, slots] = [tensors.pages, tensors.expected, tensors.slots].map((t) => [...t.data]);
  const { data } = tensors.updates;
  for (let i = 1; i <= data[0]; i++) {
    const [kind, a, b, c, d, e, f, g] = data.subarray(8 * i, 8 * i + 8);
    if (kind === T.issue) pages.splice(8 * a, 8, ...pageRecord(a, b, [c, d]));
    if (kind === T.retire) pages.splice(8 * a, 8, 0, 0, b, 0, 0, 0, 0, 0);
    if (kind === T.begin) slots.splice(4 * a, 4, b, 0, 0, 0);
    if (kind === T.bind) expected.splice(8 * (a * MAX_PAGES + b), 8, ...expectedRecord(c, d, [e, f], g));
  }
  return { pages, expected, slots };
}

const admission = [
  [T.issue, 3, 5, ...SALT],
  [T.issue, 5, 1, ...SALT],
  [T.begin, 2, 41],
  [T.bind, 2, 0, 3, 5, ...SALT, 41],
  [T.bind, 2, 1, 5, 1, ...SALT, 41],
];
const fault = (what: string) => new RegExp(`^(updates: ${what} is out of range|index out of range)`);
const refused = (record: number[]) => caseOf("", [record]).args;

export default {
  op: "tag_update",
  oracle,
  cases: [
    caseOf("an admission: pages issued, a stay begun, its pages bound", admission),
    caseOf("no records change nothing, whatever lies beyond the count", [], 3),
    caseOf("a freed page has no tag and the next generation", [[T.retire, 4, 8], [T.nothing]]),
    caseOf("a generation beyond 2^31", [
      [T.issue, 1, -3, -1, -1],
      [T.bind, 0, 3, 1, -3, -1, -1, 7],
    ]),
    caseOf(
      "more records than threads",
      Array.from({ length: 2100 }, (_, i) => [T.issue, 2, 9, ...SALT].map((x) => (i === 2099 ? x : 0))),
    ),
  ],
  bad: [
    { name: "a page beyond the pool", args: refused([T.issue, 6, 1]), error: fault("page 6") },
    { name: "a slot that does not exist", args: refused([T.begin, 3, 1]), error: fault("slot 3") },
    {
      name: "a logical page beyond the table",
      args: refused([T.bind, 0, 4, 1]),
      error: fault("logical page 4"),
    },
    { name: "a bound page beyond the pool", args: refused([T.bind, 0, 0, -1]), error: fault("page -1") },
    { name: "an unknown kind", args: refused([9]), error: fault("kind 9") },
    {
      name: "a count beyond the records",
      args: { updates: i32([8], [1, 0, 0, 0, 0, 0, 0, 0]) },
      error: fault("count 1"),
    },
    { name: "a secret of one word", args: { secret: i32([1], [1]) }, error: /^secret: must be/ },
  ],
} satisfies OpCases;
