import { PLAN_LAYOUT as L, PlanWriter, planCapacity } from "../../gpu-node/engine/plan.ts";
import { filled, ints, type OpCase, type OpCases, type OracleInput, values } from "./harness.ts";

const limits = { slots: 3, maxPages: 4, maxLen: 256, pages: 30, vocab: 90, maxTokens: 16, maxRows: 3 };

interface Row {
  slot: number;
  fresh: number;
  past: number;
  sample: boolean;
}

/** `plan` writes rows and returns the plan's flags. */
interface Step {
  name: string;
  tokens: number;
  rows: number;
  samples: number;
  plan: (writer: PlanWriter) => number;
}

function caseOf({ name, tokens, rows, samples, plan }: Step): OpCase {
  const writer = new PlanWriter(limits);
  writer.begin(1);
  const flags = plan(writer);
  const words = new Int32Array(planCapacity(limits));
  words.set(writer.finish(flags));
  const i32 = (...shape: number[]) => ({ dtype: "i32", shape, fill: ints(0, 9) }) as const;
  return {
    name,
    args: {
      plan: { dtype: "i32", shape: [words.length], fill: values(words) },
      // Every slot has pages and a history already.
      page_table: { dtype: "i32", shape: [limits.slots, limits.maxPages], fill: ints(1, 30) },
      history: { dtype: "i32", shape: [limits.slots, limits.maxLen], fill: ints(0, 90) },
      params: { dtype: "i32", shape: [limits.slots, L.param_count], fill: ints(-5, 5) },
      bias_ids: { dtype: "i32", shape: [limits.slots, L.max_bias], fill: ints(0, 90) },
      bias_values: { dtype: "f32", shape: [limits.slots, L.max_bias], fill: filled(0.5) },
      token_ids: i32(tokens),
      positions: i32(tokens),
      write_slots: i32(tokens),
      row_slot: i32(rows),
      row_start: i32(rows + 1),
      kv_len: i32(rows),
      logit_rows: i32(samples),
      sample_rows: i32(samples, L.sample_stride),
    },
  };
}

/** The rows of a plan without updates or with history and page updates only, expanded from the tensors. */
function oracle({ tensors }: OracleInput): Record<string, number[]> {
  const plan = tensors.plan.data;
  const table = [...tensors.page_table.data];
  const history = [...tensors.history.data];
  let at: number = L.header;
  for (let i = 0; i < plan[L.h_updates]; i++) {
    const [kind, slot, start, count] = plan.subarray(at, at + 4);
    const [target, width] = kind === L.update_pages ? [table, limits.maxPages] : [history, limits.maxLen];
    for (let j = 0; j < count; j++) target[slot * width + start + j] = plan[at + 4 + j];
    at += 4 + count;
  }
  const rows: Row[] = [];
  for (let i = 0; i < plan[L.h_rows]; i++, at += L.row_stride) {
    rows.push({ slot: plan[at], fresh: plan[at + 1], past: plan[at + 2], sample: plan[at + 3] === 1 });
  }
  const all = plan[L.h_flags] === L.flag_all_logits;
  const [T, R, S] = [tensors.token_ids, tensors.row_slot, tensors.logit_rows].map((t) => t.data.length);
  const out = {
    token_ids: new Array(T).fill(0),
    positions: new Array(T).fill(0),
    write_slots: new Array(T).fill(-1),
    row_slot: new Array(R).fill(0),
    row_start: [0],
    kv_len: new Array(R).fill(0),
    logit_rows: Array.from({ length: S }, (_, i) => (all ? i : 0)),
    sample_rows: Array.from({ length: 4 * S }, (_, i): number => (i % 4 === 0 ? -1 : 0)),
  };
  let token = 0;
  let sample = 0;
  for (let r = 0; r < R; r++) {
    const row = rows[r];
    for (let i = 0; row && i < row.fresh; i++) {
      const position = row.past + i;
      const page = table[row.slot * limits.maxPages + Math.floor(position / 64)];
      out.token_ids[token + i] = history[row.slot * limits.maxLen + position];
      out.positions[token + i] = position;
      out.write_slots[token + i] = page * 64 + (position % 64);
    }
    if (row) [out.row_slot[r], out.kv_len[r]] = [row.slot, row.past + row.fresh];
    token = Math.min(T, token + (row?.fresh ?? 1));
    out.row_start.push(token);
    if (!row?.sample || all) continue;
    out.logit_rows[sample] = token - 1;
    out.sample_rows.splice(4 * sample++, 4, ...[row.slot, row.past + row.fresh, 7, 2]);
  }
  return { ...out, page_table: table, history };
}

export default {
  op: "plan_expand",
  oracle,
  cases: [
    caseOf({
      name: "an extend row across a page's end and a decode row",
      tokens: 9,
      rows: 2,
      samples: 1,
      plan(writer) {
        writer.row(2, 8, 60, false, 7, 2);
        writer.endExtend();
        writer.row(0, 1, 128, true, 7, 2);
        return 0;
      },
    }),
    caseOf({
      name: "new pages and tokens, padding after the rows",
      tokens: 6,
      rows: 3,
      samples: 3,
      plan(writer) {
        writer.pages(1, Int32Array.of(0, 21, 22), 1, 3);
        writer.history(
          1,
          Int32Array.from({ length: 70 }, (_, i) => i),
          64,
          70,
        );
        writer.row(1, 3, 66, true, 7, 2);
        writer.endExtend();
        return 0;
      },
    }),
    caseOf({
      name: "updates, and room for more tokens than a block of threads expands",
      tokens: 1500,
      rows: 3,
      samples: 2,
      plan(writer) {
        writer.history(
          0,
          Int32Array.from({ length: 20 }, (_, i) => 50 + i),
          10,
          20,
        );
        writer.pages(2, Int32Array.of(0, 9), 1, 2);
        writer.row(2, 8, 60, true, 7, 2);
        writer.row(0, 5, 11, true, 7, 2);
        writer.endExtend();
        return 0;
      },
    }),
    caseOf({
      name: "logits of every token",
      tokens: 5,
      rows: 1,
      samples: 5,
      plan(writer) {
        writer.row(1, 5, 0, false, 7, 2);
        writer.endExtend();
        return L.flag_all_logits;
      },
    }),
  ],
  bad: [
    {
      name: "slots differ",
      args: { history: { dtype: "i32", shape: [2, 256], fill: ints(0, 9) } },
      error: /^history: /,
    },
    {
      name: "a float plan",
      args: { plan: { dtype: "f32", shape: [64], fill: filled(0) } },
      error: /^plan: must be/,
    },
    {
      name: "no plan",
      args: { plan: { dtype: "i32", shape: [64], fill: filled(0) } },
      error: /^plan: /,
      cuda: /^index out of range: 0$/,
    },
    {
      name: "room for too few biases",
      args: { bias_ids: { dtype: "i32", shape: [3, 2], fill: ints(0, 9) } },
      error: /^bias_/,
    },
    {
      name: "too few tokens",
      args: { token_ids: { dtype: "i32", shape: [8] } },
      error: /^(positions|plan): /,
    },
    { name: "row_start too short", args: { row_start: { dtype: "i32", shape: [2] } }, error: /^row_start: / },
  ],
} satisfies OpCases;
