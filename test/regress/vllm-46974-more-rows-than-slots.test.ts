// vLLM #46974: the scheduler admitted more requests than the worker had rows for, since requests that had ended still
// held theirs until the step in flight was done.
import assert from "node:assert/strict";
import { test } from "node:test";
import { Harness, promptOf } from "../scripted/harness.ts";

for (const depth of [1, 2]) {
  test(`a stream of short requests never holds more slots than there are (depth ${depth})`, () => {
    const h = new Harness({ slots: 3, maxBatchTokens: 64 }, depth);
    for (let i = 0; i < 60; i++) h.start(promptOf(1 + (i % 9), i), 1 + (i % 3));
    for (let busy = true; busy; ) {
      busy = h.tick();
      const { running, slots } = h.sequences;
      assert.equal(running.length + slots.free, 3);
    }
    for (const heard of h.heard.values()) h.assertOracle(heard);
    h.assertEmpty();
  });
}
