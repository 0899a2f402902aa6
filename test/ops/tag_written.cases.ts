import { TAG_LAYOUT as T } from "../../gpu-node/kv/tag-layout.ts";
import { ints, type OpCase, type OpCases, type OracleInput } from "./harness.ts";
import { i32 } from "./tags.ts";

const PAGES = 5;

function caseOf(name: string, slots: number[]): OpCase {
  const pages = { dtype: "i32", shape: [PAGES, T.page_words], fill: ints(-9, 9) } as const;
  return { name, args: { write_slots: i32([slots.length], slots), pages } };
}

// Token by token: the last one of a page stays.
function oracle({ tensors }: OracleInput): Record<string, number[]> {
  const pages = [...tensors.pages.data];
  for (const slot of tensors.write_slots.data)
    if (slot >= 0) pages[Math.floor(slot / 64) * T.page_words + T.page_written] = (slot % 64) + 1;
  return { pages };
}

const range = (first: number, count: number) => Array.from({ length: count }, (_, i) => first + i);

export default {
  op: "tag_written",
  oracle,
  cases: [
    caseOf("a chunk over a page's end and two decode rows", [
      ...range(64 + 50, 14),
      ...range(3 * 64, 20),
      2 * 64 + 63,
      4 * 64,
    ]),
    caseOf("neighbouring pages, the second written from its beginning", [
      ...range(64 + 60, 4),
      ...range(2 * 64, 9),
    ]),
    caseOf("a chunk of more tokens than a block has threads", range(64, 256)),
    caseOf("tokens that are written nowhere", [-1, -1, 70, -1, 130]),
    caseOf("no tokens", []),
  ],
  bad: [
    {
      name: "a slot beyond the pool",
      args: { write_slots: i32([1], [PAGES * 64]) },
      error: /^(slot 320 lies outside|index out of range: 320)/,
    },
  ],
} satisfies OpCases;
