// vLLM #17305, #18957: the number of cached tokens found in an attempt that failed for lack of blocks was kept for the
// next attempt, when those blocks had been evicted.
import assert from "node:assert/strict";
import { promptOf, scripted, usage } from "../scripted/harness.ts";

scripted(
  "a waiting request looks its prefix up again when it is admitted",
  { pages: 8, slots: 2, watermarkPages: 0, maxBatchTokens: 512 },
  function* (h) {
    h.start(promptOf(64 * 3 + 1), 1);
    h.finish();
    assert.equal(h.pool.cached, 3);
    const grows = h.start(promptOf(64 * 4, 2), 140); // 4 pages and growing: evicts all that is cached
    yield;
    const waits = h.start([...promptOf(64 * 3), ...promptOf(64 * 3, 3)], 4);
    yield;
    assert.equal(h.sequences.waiting.length, 1, "3 pages are hits, but 4 more are needed");
    h.finish();
    assert.ok(grows.endTick > 0);
    assert.ok(usage(waits).cachedTokens < 192, "at least one page had been evicted");
    h.assertEmpty();
  },
);
