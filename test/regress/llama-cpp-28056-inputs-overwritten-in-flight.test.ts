// llama.cpp #28056: a step's inputs were overwritten while the device still read them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { GREEDY } from "../../gpu-node/engine/sampling.ts";
import { Scheduler } from "../../gpu-node/engine/scheduler.ts";

const limits = { slots: 4, maxPages: 8, maxLen: 512, pages: 33, vocab: 100, maxTokens: 64, maxRows: 4 };
const ignore = { token() {}, finish() {}, error() {}, distrusted() {}, staleEntry() {} };

test("at depth 2 the plan of a step in flight keeps its words while the next one is written", () => {
  const options = { maxBatchTokens: 64, maxRunning: 4, maxWaiting: 9, watermarkPages: 0 };
  const scheduler = new Scheduler(limits, 2, options, ignore);
  const request = { sampling: GREEDY, maxTokens: 9, stopTokens: [], minTokens: 0, salt: "", label: "" };
  scheduler.add(1, { ...request, prompt: Int32Array.from({ length: 100 }, (_, i) => i) });
  const first = scheduler.schedule()!;
  const words = first.plan.slice();
  const rows = first.rows;
  const second = scheduler.schedule()!;
  assert.notEqual(second.step, first.step);
  assert.deepEqual(first.plan.slice(), words);
  assert.equal(first.rows, rows);
  assert.equal(first.requests[0]?.handle, 1);
});
