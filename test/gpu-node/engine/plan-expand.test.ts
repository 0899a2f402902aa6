// plan_expand on the device against a plain expansion here.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import fc from "fast-check";
import { PLAN_LAYOUT as L, PlanWriter, planCapacity } from "../../../gpu-node/engine/plan.ts";
import { floatBits, GREEDY } from "../../../gpu-node/engine/sampling.ts";
import { openDevice } from "../../../gpu-node/native/device.ts";

const limits = { slots: 4, maxPages: 8, maxLen: 512, pages: 20, vocab: 100, maxTokens: 64, maxRows: 4 };
const device = openDevice({ backend: "cpu", threads: 1 });
after(() => device.dispose());

const state = {
  plan: device.alloc("i32", [planCapacity(limits)]),
  page_table: device.alloc("i32", [limits.slots, limits.maxPages]),
  history: device.alloc("i32", [limits.slots, limits.maxLen]),
  params: device.alloc("i32", [limits.slots, L.param_count]),
  bias_ids: device.alloc("i32", [limits.slots, L.max_bias]),
  bias_values: device.alloc("f32", [limits.slots, L.max_bias]),
};

function expand(plan: Int32Array, tokens: number, rows: number, samples: number) {
  device.upload(state.plan, plan);
  const out = {
    token_ids: device.alloc("i32", [tokens]),
    positions: device.alloc("i32", [tokens]),
    write_slots: device.alloc("i32", [tokens]),
    row_slot: device.alloc("i32", [rows]),
    row_start: device.alloc("i32", [rows + 1]),
    kv_len: device.alloc("i32", [rows]),
    logit_rows: device.alloc("i32", [samples]),
    sample_rows: device.alloc("i32", [samples, L.sample_stride]),
  };
  device.ops.plan_expand({ ...state, ...out });
  device.sync();
  const names = Object.keys(out) as (keyof typeof out)[];
  const read = names.map((name) => [name, [...new Int32Array(device.read(out[name]))]]);
  return Object.fromEntries(read) as Record<keyof typeof out, number[]>;
}

const prompt = Int32Array.from({ length: 70 }, (_, i) => i + 1);

test("an admission, a chunk across a page's end and a decode row", () => {
  const writer = new PlanWriter(limits);
  writer.begin(1);
  writer.pages(2, Int32Array.of(4, 9), 0, 2);
  writer.history(2, prompt, 0, 70);
  writer.sampling(2, { ...GREEDY, temperature: 0.5, logitBias: [[7, 2.5]] });
  writer.pages(0, Int32Array.of(3), 0, 1);
  writer.history(0, Int32Array.of(50, 51, 52), 0, 3);
  writer.row(2, 4, 62, false, 8, 70);
  writer.endExtend();
  writer.row(0, 1, 2, true, 6, 2);
  const out = expand(writer.finish(), 5, 2, 1);
  assert.deepEqual(out, {
    token_ids: [63, 64, 65, 66, 52],
    positions: [62, 63, 64, 65, 2],
    write_slots: [4 * 64 + 62, 4 * 64 + 63, 9 * 64, 9 * 64 + 1, 3 * 64 + 2],
    row_slot: [2, 0],
    row_start: [0, 4, 5],
    kv_len: [66, 3],
    logit_rows: [4],
    sample_rows: [0, 3, 6, 2],
  });
  const params = new Int32Array(device.read(state.params.slice(0, 2, 3)));
  assert.equal(params[0], floatBits(0.5));
  assert.equal(params[10], 1);
  assert.equal(new Int32Array(device.read(state.bias_ids.slice(0, 2, 3)))[0], 7);
  assert.equal(new Float32Array(device.read(state.bias_values.slice(0, 2, 3)))[0], 2.5);
});

test("what the plan leaves of the tensors is padding that is written nowhere and samples nothing", () => {
  const writer = new PlanWriter(limits);
  writer.begin(2);
  writer.row(0, 1, 2, true, 6, 2);
  const plan = writer.finish();
  plan[L.h_extend_rows] = plan[L.h_extend_tokens] = 0;
  assert.deepEqual(expand(plan, 4, 3, 3), {
    token_ids: [52, 0, 0, 0],
    positions: [2, 0, 0, 0],
    write_slots: [3 * 64 + 2, -1, -1, -1],
    row_slot: [0, 0, 0],
    row_start: [0, 1, 2, 3],
    kv_len: [3, 0, 0],
    logit_rows: [0, 0, 0],
    sample_rows: [0, 3, 6, 2, -1, 0, 0, 0, -1, 0, 0, 0],
  });
});

test("a void row of a warm-up writes nothing", () => {
  const writer = new PlanWriter(limits);
  writer.begin(3);
  writer.row(-1, 3, 0, true, 0, 0);
  writer.endExtend();
  const out = expand(writer.finish(), 3, 1, 1);
  assert.deepEqual(out.write_slots, [-1, -1, -1]);
  assert.deepEqual(out.kv_len, [0]);
  assert.deepEqual(out.sample_rows, [-1, 0, 0, 0]);
});

test("logits of every token are wanted: one logit row per token, nothing sampled", () => {
  const writer = new PlanWriter(limits);
  writer.begin(4);
  writer.row(2, 3, 0, false, 8, 70);
  writer.endExtend();
  const out = expand(writer.finish(L.flag_all_logits), 3, 1, 3);
  assert.deepEqual(out.logit_rows, [0, 1, 2]);
  assert.deepEqual(out.sample_rows, [-1, 0, 0, 0, -1, 0, 0, 0, -1, 0, 0, 0]);
});

test("a released slot has no pages: a row of it fails by name instead of touching the null page", () => {
  const writer = new PlanWriter(limits);
  writer.begin(5);
  writer.release(2);
  writer.row(2, 1, 10, true, 8, 5);
  const plan = writer.finish();
  assert.throws(() => expand(plan, 1, 1, 1), /plan_expand: .*slot 2 has no page/);
});

test("a plan larger than the step's tensors is refused", () => {
  const writer = new PlanWriter(limits);
  writer.begin(6);
  writer.row(0, 3, 0, true, 8, 2);
  writer.endExtend();
  assert.throws(() => expand(writer.finish(), 2, 1, 1), /plan_expand: .*tokens/);
});

test("whatever words a plan holds, the expansion fails by name or stays inside its tensors", () => {
  const out = {
    token_ids: device.alloc("i32", [64]),
    positions: device.alloc("i32", [64]),
    write_slots: device.alloc("i32", [64]),
    row_slot: device.alloc("i32", [4]),
    row_start: device.alloc("i32", [5]),
    kv_len: device.alloc("i32", [4]),
    logit_rows: device.alloc("i32", [64]),
    sample_rows: device.alloc("i32", [64, L.sample_stride]),
  };
  const writer = new PlanWriter(limits);
  writer.begin(7);
  writer.pages(1, Int32Array.of(4, 9), 0, 2);
  writer.history(1, prompt, 0, 20);
  writer.row(1, 4, 16, true, 8, 20);
  writer.endExtend();
  const plan = writer.finish().slice();
  const word = fc.tuple(fc.nat(plan.length - 1), fc.oneof(fc.integer(), fc.integer({ min: -3, max: 90 })));
  fc.assert(
    fc.property(fc.array(word, { minLength: 1, maxLength: 3 }), (changes) => {
      const changed = plan.slice();
      for (const [index, value] of changes) changed[index] = value | 0;
      device.upload(state.plan, changed);
      device.ops.plan_expand({ ...state, ...out });
      try {
        device.sync();
      } catch (error) {
        assert.match((error as Error).message, /^plan_expand: /);
        return;
      }
      const starts = new Int32Array(device.read(out.row_start));
      assert.ok(starts.every((start, i) => start <= 64 && (i === 0 || start >= starts[i - 1])));
      const slots = new Int32Array(device.read(out.row_slot));
      assert.ok(slots.every((slot) => slot >= 0 && slot < limits.slots));
    }),
    { numRuns: 500 },
  );
});
