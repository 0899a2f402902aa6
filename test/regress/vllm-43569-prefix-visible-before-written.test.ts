// vLLM #41400 and #43569: a block's hash was registered when its step was scheduled; after an abort or a preemption
// another request hit a block that had never been written.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Harness, promptOf, usage } from "../scripted/harness.ts";

for (const depth of [1, 2]) {
  test(`pages of a prompt aborted in the middle are hit only as far as they were written (depth ${depth})`, () => {
    const h = new Harness({ maxBatchTokens: 64 }, depth);
    const a = h.start(promptOf(64 * 4), 5);
    for (let i = 0; i < 2; i++) h.tick();
    h.abort(a);
    const b = h.start(promptOf(64 * 4), 5);
    h.finish();
    // One or two chunks of one page each had completed.
    assert.ok(usage(b).cachedTokens <= 128, `${usage(b).cachedTokens} tokens from the cache`);
    h.assertOracle(b);
    h.assertEmpty();
  });
}

test("a request that arrives while the step that writes its prefix is in flight waits until it is written", () => {
  const h = new Harness({ maxBatchTokens: 512, slots: 4 }, 2);
  h.start(promptOf(150), 5);
  h.tick();
  const b = h.start(promptOf(150), 5);
  h.finish();
  assert.equal(usage(b).cachedTokens, 128);
  h.assertOracle(b);
});
