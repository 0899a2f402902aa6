// mini-sglang drops a prompt that exceeds its cache without a word, and its client waits for ever.
import assert from "node:assert/strict";
import { ending, promptOf, scripted } from "../scripted/harness.ts";

scripted(
  "a prompt longer than the pool or the context hears of it in the step it arrives",
  { pages: 4, maxLen: 1024, slots: 4 },
  function* (h) {
    const running = h.start(promptOf(10), 100);
    yield;
    const poolTooSmall = h.start(promptOf(64 * 4, 2), 1);
    const contextTooSmall = h.start(promptOf(5000, 3), 1);
    yield;
    assert.deepEqual([ending(poolTooSmall), ending(contextTooSmall)], ["prompt_too_long", "prompt_too_long"]);
    h.finish();
    assert.equal(ending(running), "length");
  },
);
