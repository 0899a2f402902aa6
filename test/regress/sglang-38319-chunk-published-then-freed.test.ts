// SGLang #38319: a chunk entered the prefix cache in the middle of a prefill, then its pages were freed by a
// retraction; every later request with that prefix answered garbage until the cache was flushed.
import assert from "node:assert/strict";
import { promptOf, scripted, usage } from "../scripted/harness.ts";

scripted(
  "a prefix whose first request was preempted in the middle of its prefill is sound for all who follow",
  { pages: 7, slots: 2, maxBatchTokens: 64, watermarkPages: 0 },
  function* (h) {
    const grows = h.start(promptOf(60, 9), 200);
    yield;
    const victim = h.start(promptOf(64 * 4), 3);
    while (h.sequences.preemptions === 0 && h.loop.live === 2) yield;
    h.finish();
    assert.ok(grows.endTick > 0 && victim.endTick > 0);
    for (let i = 0; i < 3; i++) {
      const later = h.start(promptOf(64 * 4), 5);
      h.finish();
      h.assertOracle(later);
    }
    h.assertEmpty();
  },
);

scripted(
  "chunks of a preempted prefill stay cached where they were complete, and its own second attempt finds them",
  { pages: 12, slots: 2, maxBatchTokens: 64, preemptEvery: 4 },
  function* (h) {
    h.start(promptOf(10, 9), 30);
    const b = h.start(promptOf(64 * 5), 3);
    yield;
    h.finish();
    assert.equal(usage(b).cachedTokens, 0, "usage tells what was cached when the request came");
    assert.ok(h.loop.counters.preemptions > 0);
    h.assertEmpty();
  },
);
