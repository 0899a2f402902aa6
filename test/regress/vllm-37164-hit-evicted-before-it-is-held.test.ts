// vLLM #37076, fixed by #37164: a cached block found with no references was taken by another allocation before the
// request that had found it held it; the request then read the other's content.
import assert from "node:assert/strict";
import { type Harness, promptOf, scripted, usage } from "../scripted/harness.ts";

function withCachedPrefix(h: Harness): void {
  h.start(promptOf(64 * 3), 1);
  h.finish();
  assert.equal(h.pool.cached, 3);
}

scripted(
  "a request whose own pages have to be evicted from the cache keeps the cached pages that it shares",
  { pages: 6, watermarkPages: 0, maxBatchTokens: 512 },
  function* (h) {
    withCachedPrefix(h);
    // 2 hits (the last page holds the last token), 4 more pages: 3 free ones, and the one cached page that is no hit.
    const a = h.start([...promptOf(64 * 2 + 32), ...promptOf(64 * 3 + 20, 5)], 8);
    yield;
    h.finish();
    assert.equal(usage(a).cachedTokens, 128);
    h.assertEmpty();
  },
);

scripted(
  "a request admitted in the same step takes none of the pages that an earlier one has found",
  { pages: 7, watermarkPages: 0, maxBatchTokens: 512, slots: 4 },
  function* (h) {
    withCachedPrefix(h);
    const sharing = h.start([...promptOf(64 * 3), ...promptOf(20, 5)], 8);
    const other = h.start(promptOf(64 * 2 + 30, 7), 8);
    yield;
    h.finish();
    assert.equal(usage(sharing).cachedTokens, 192);
    assert.equal(usage(other).cachedTokens, 0);
    h.assertEmpty();
  },
);
