// Preemption, the two fences, the prefix cache, aborts.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ending, Harness, promptOf, scripted, usage } from "./harness.ts";

scripted(
  "short of pages the youngest is preempted, and all get the oracle's tokens",
  { pages: 6 },
  function* (h) {
    const requests = [1, 2, 3].map((seed) => h.start(promptOf(60, seed), 150));
    yield;
    h.finish();
    assert.ok(h.loop.counters.preemptions > 0);
    assert.ok(requests[0].endTick <= requests[1].endTick && requests[1].endTick <= requests[2].endTick);
    for (const request of requests) assert.equal(usage(request).completionTokens, 150);
    h.assertEmpty();
  },
);

scripted("a preempted request is the next to run", { pages: 5, slots: 3 }, function* (h) {
  const first = h.start(promptOf(60), 200);
  const second = h.start(promptOf(60, 2), 100);
  while (h.loop.scheduler.sequences.preemptions === 0) yield;
  const third = h.start(promptOf(60, 3), 10);
  h.finish();
  assert.ok(second.endTick > first.endTick);
  assert.ok(second.firstTick < third.firstTick);
  h.assertEmpty();
});

scripted("a preemption every third step changes no token", { preemptEvery: 3, pages: 20 }, function* (h) {
  for (let i = 0; i < 6; i++) h.start(promptOf(20 + 30 * i, i), 40);
  yield;
  h.finish();
  assert.ok(h.loop.counters.preemptions > 10);
  h.assertEmpty();
});

scripted(
  "pages behind the fence are waited for, nobody is preempted for them",
  { pages: 6, slots: 4 },
  function* (h, depth) {
    const grows = h.start(promptOf(64 * 2), 100, { salt: "a" });
    const ends = h.start(promptOf(64 * 2 + 60, 2), 100, { salt: "b" });
    while (grows.tokens.length < 62) {
      if (ends.tokens.length === 3 && ending(ends) === "open") h.abort(ends);
      yield;
    }
    h.finish();
    assert.equal(h.loop.counters.preemptions, 0, `depth ${depth}`);
    assert.equal(ending(grows), "length");
  },
);

test("rows that need no page go on while an earlier one waits for a page behind the fence", () => {
  const h = new Harness({ pages: 4, slots: 3, watermarkPages: 0, prefixCache: false }, 2);
  h.start(promptOf(120), 40);
  h.start(promptOf(10, 2), 40);
  const leaves = h.start(promptOf(20, 3), 40);
  h.tick();
  const [needs, other] = h.sequences.running;
  while (needs.computed < 128) h.tick();
  h.abort(leaves);
  const before = other.computed;
  h.tick();
  assert.equal(needs.computed, 128, "no page yet");
  assert.equal(other.computed, before + 1);
  h.finish();
  for (const heard of h.heard.values()) h.assertOracle(heard);
});

test("a page freed while a step is in flight is not handed out before that step has completed", () => {
  const h = new Harness({ pages: 4, slots: 2, prefixCache: false, maxBatchTokens: 256 }, 2);
  const a = h.start(promptOf(64 * 2 + 10), 50);
  h.tick(); // step 1 in flight
  h.abort(a);
  h.start(promptOf(64 * 2 + 10, 2), 3);
  // The abort is taken while step 1 may still write: its 3 pages are fenced, 1 is free, the next request waits.
  h.tick();
  assert.equal(ending(a), "abort");
  h.finish();
  for (const heard of h.heard.values()) h.assertOracle(heard);
  h.assertEmpty();
});

scripted("a second request with the same prompt takes its full pages from the cache", {}, function* (h) {
  const a = h.start(promptOf(200), 3);
  yield;
  h.finish();
  const b = h.start(promptOf(200), 3);
  h.finish();
  assert.equal(usage(a).cachedTokens, 0);
  assert.equal(usage(b).cachedTokens, 192);
  assert.deepEqual(a.tokens, b.tokens);
});

scripted("the last token of a prompt is computed even when all its pages are cached", {}, function* (h) {
  h.start(promptOf(129), 1);
  yield;
  h.finish();
  const b = h.start(promptOf(128), 2);
  h.finish();
  assert.equal(usage(b).cachedTokens, 64);
});

scripted("accounts share no pages", {}, function* (h) {
  h.start(promptOf(200), 1, { salt: "one" });
  yield;
  h.finish();
  const other = h.start(promptOf(200), 1, { salt: "two" });
  h.finish();
  assert.equal(usage(other).cachedTokens, 0);
});

scripted("outputs are cached too: a second turn reports them", {}, function* (h) {
  const a = h.start(promptOf(60), 80);
  yield;
  h.finish();
  const b = h.start([...promptOf(60), ...a.tokens, ...promptOf(10, 9)], 3);
  h.finish();
  assert.equal(usage(b).cachedTokens, 128);
});

test("a page is not visible before the step that writes it has completed", () => {
  const h = new Harness({ maxBatchTokens: 512 }, 2);
  h.start(promptOf(200), 5);
  h.tick();
  assert.equal(h.loop.stepsInFlight, 1);
  assert.equal(h.sequences.prefix.size, 0);
  const b = h.start(promptOf(200), 5);
  let seen = false;
  while (!seen) {
    h.tick();
    seen = h.sequences.prefix.size > 0;
    assert.equal(b.firstTick, -1);
    assert.ok(seen || h.sequences.waiting.length === 1, "b waits for the step that writes its prefix");
  }
  h.finish();
  assert.equal(usage(b).cachedTokens, 192);
  for (const heard of h.heard.values()) h.assertOracle(heard);
});

test("the end of a cached prefix is evicted before its beginning", () => {
  const h = new Harness({ pages: 4 });
  h.start(promptOf(129), 1); // 3 pages, 2 of them cached afterwards
  h.finish();
  h.start(promptOf(180, 2), 1); // 3 pages: the 2 free ones and an evicted one
  h.finish();
  const again = h.start(promptOf(129), 1);
  h.finish();
  assert.equal(usage(again).cachedTokens, 64);
});

test("of cached prefixes the least recently used is evicted first", () => {
  const h = new Harness({ pages: 6 });
  for (const seed of [1, 2, 1]) {
    h.start(promptOf(129, seed), 1);
    h.finish();
  }
  h.start(promptOf(180, 3), 1); // 3 pages: the 2 free ones and an evicted one
  h.finish();
  const again = h.start(promptOf(129, 1), 1);
  h.finish();
  assert.equal(usage(again).cachedTokens, 128);
});

scripted(
  "an abort at any tick frees everything within two steps",
  { pages: 12, maxBatchTokens: 32, slots: 4 },
  function* (h) {
    for (let at = 0; at < 14; at++) {
      const victim = h.start(promptOf(100, at + 1), 20, { salt: `${at}` });
      const other = h.start(promptOf(30, at + 50), 12, { salt: `${at}` });
      for (let i = 0; i < at; i++) yield;
      h.abort(victim);
      const steps = h.loop.counters.steps;
      const heard = victim.tokens.length;
      yield;
      yield;
      if (ending(victim) === "abort") {
        assert.equal(victim.tokens.length, heard, "no token after the abort");
        assert.ok(h.sequences.running.every((r) => r.handle !== victim.handle));
      }
      assert.ok(h.loop.counters.steps - steps <= 2);
      h.finish();
      assert.equal(ending(other), "length");
      h.assertEmpty();
    }
  },
);

test("a request aborted while its step runs gets no token of it", () => {
  const h = new Harness({ duringStep: (h) => h.abort(h.heard.get(1)!) });
  const a = h.start(promptOf(10), 5);
  h.finish();
  assert.equal(ending(a), "abort");
  assert.deepEqual(a.tokens, []);
  h.assertEmpty();
});

scripted("aborting twice, or after the end, is harmless", {}, function* (h) {
  const a = h.start(promptOf(10), 3);
  h.finish();
  h.abort(a);
  const b = h.start(promptOf(10), 30);
  yield;
  h.abort(b);
  h.abort(b);
  h.finish();
  assert.deepEqual([ending(a), ending(b)], ["length", "abort"]);
  h.assertEmpty();
});

scripted("a waiting request can be aborted", { slots: 1, maxRunning: 1 }, function* (h) {
  h.start(promptOf(10), 20);
  yield;
  const waiting = h.start(promptOf(10, 2), 5);
  yield;
  h.abort(waiting);
  h.finish();
  assert.equal(ending(waiting), "abort");
  assert.deepEqual(usage(waiting), { promptTokens: 10, completionTokens: 0, cachedTokens: 0 });
});
