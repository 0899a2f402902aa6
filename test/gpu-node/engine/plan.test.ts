// The plan's two definitions agree, the native validator accepts what the scheduler writes and refuses the rest.
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { PLAN_LAYOUT as L, PlanWriter, packLimits, planCapacity } from "../../../gpu-node/engine/plan.ts";
import { GREEDY } from "../../../gpu-node/engine/sampling.ts";
import { loadAddon } from "../../../gpu-node/native/load.ts";

const limits = { slots: 4, maxPages: 8, maxLen: 512, pages: 20, vocab: 100, maxTokens: 64, maxRows: 4 };
const addon = loadAddon();

/** An admission of 70 tokens in slot 2 (70 - 8 cached), a decode row in slot 0, a release of slot 1. */
function example(): Int32Array {
  const writer = new PlanWriter(limits);
  writer.begin(2 ** 33 + 5);
  writer.release(1);
  writer.pages(0, Int32Array.of(0, 3, 7), 1, 3);
  writer.pages(2, Int32Array.of(4, 5), 0, 2);
  writer.history(
    2,
    Int32Array.from({ length: 70 }, (_, i) => i),
    0,
    70,
  );
  writer.sampling(2, { ...GREEDY, logitBias: [[5, -1.5]] });
  writer.row(2, 20, 8, false, 11, 70);
  writer.endExtend();
  writer.row(0, 1, 130, true, 9, 100);
  return writer.finish().slice();
}

test("the plan's layout is the same in C++ and in TypeScript", () => {
  assert.deepEqual(addon.planLayout(), { ...L });
});

test("the validator accepts a plan of the writer", () => {
  addon.validatePlan(example(), packLimits(limits));
});

test("a step number beyond 32 bits travels as two words", () => {
  const plan = example();
  assert.equal(plan[L.h_step_high] * 2 ** 32 + (plan[L.h_step_low] >>> 0), 2 ** 33 + 5);
});

const rowsAt = example()[L.h_rows_offset];
const decodeRow = rowsAt + L.row_stride;
const corruptions: [string, number, number, RegExp][] = [
  ["another magic", L.h_magic, 0, /magic/],
  ["another version", L.h_version, 2, /version/],
  ["a length that is not its own", L.h_length, 50, /length/],
  ["an unknown flag", L.h_flags, 2, /flags/],
  ["more tokens than rows have", L.h_tokens, 22, /tokens/],
  ["no rows", L.h_rows, 0, /rows/],
  ["more extend rows than rows", L.h_extend_rows, 3, /extend rows/],
  ["a decode row among the extend rows", L.h_extend_rows, 0, /new tokens/],
  ["extend tokens of other rows", L.h_extend_tokens, 21, /extend tokens/],
  ["samples that no row wants", L.h_samples, 2, /samples/],
  ["too few updates", L.h_updates, 3, /rows' offset/],
  ["too many updates", L.h_updates, 60, /update|kind/],
  ["rows elsewhere", L.h_rows_offset, rowsAt + 1, /rows/],
  ["an unknown update", L.header, 9, /kind/],
  ["a slot that does not exist", L.header + 1, 4, /slot/],
  ["a page that does not exist", L.header + 4 + 4, 20, /page/],
  ["the null page", L.header + 4 + 4, 0, /page/],
  ["a page table entry that does not exist", L.header + 4 + 2, 7, /end/],
  ["a negative count", L.header + 4 + 3, -2, /count/],
  ["a count beyond the plan", L.header + 4 + 3, 2 ** 30, /end|count/],
  ["a row of a slot that does not exist", decodeRow, 4, /slot/],
  ["two rows of one slot", decodeRow, 2, /one row/],
  ["a row without tokens", rowsAt + L.row_new, 0, /new tokens/],
  ["a row past the longest sequence", decodeRow + L.row_past, 511, /past/],
  ["a negative past", decodeRow + L.row_past, -1, /past/],
  ["a decode row that samples nothing", decodeRow + L.row_sample, 0, /sample/],
  ["a prompt longer than the row", decodeRow + L.row_prompt, 132, /prompt/],
  ["a reserved word", decodeRow + 7, 1, /reserved/],
];

for (const [what, index, value, message] of corruptions) {
  test(`the validator refuses ${what}`, () => {
    const plan = example();
    plan[index] = value;
    assert.throws(() => addon.validatePlan(plan, packLimits(limits)), message);
  });
}

test("the validator refuses a plan cut off anywhere", () => {
  const plan = example();
  for (let size = 0; size < plan.length; size++) {
    assert.throws(() => addon.validatePlan(plan.slice(0, size), packLimits(limits)));
  }
});

test("whatever words a plan holds, the validator accepts it or names a field", () => {
  fc.assert(
    fc.property(
      fc.array(
        fc.tuple(fc.nat(example().length - 1), fc.oneof(fc.integer(), fc.integer({ min: -3, max: 90 }))),
        {
          minLength: 1,
          maxLength: 4,
        },
      ),
      (changes) => {
        const plan = example();
        for (const [index, value] of changes) plan[index] = value | 0;
        try {
          addon.validatePlan(plan, packLimits(limits));
        } catch (error) {
          assert.match((error as Error).message, /^plan: /);
        }
      },
    ),
    { numRuns: 2000 },
  );
});

test("the capacity holds the largest admission beside a release and a new page of every slot", () => {
  const writer = new PlanWriter(limits);
  writer.begin(1);
  for (let slot = 0; slot < limits.slots; slot++) writer.release(slot);
  for (let slot = 0; slot < limits.slots; slot++) writer.pages(slot, Int32Array.of(1), 0, 1);
  const logitBias = Array.from({ length: 300 }, (_, i): [number, number] => [i % 100, 1]);
  const source = { sampling: { ...GREEDY, logitBias } };
  assert.ok(writer.room >= writer.admissionInts({ length: limits.maxLen, source }));
  assert.ok(writer.buffer.length === planCapacity(limits));
});
