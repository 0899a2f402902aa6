// Budget, chunks, order and admission.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { SamplingParams } from "../../gpu-node/contract/engine.ts";
import { GREEDY } from "../../gpu-node/engine/sampling.ts";
import { ending, Harness, promptOf, scripted, usage } from "./harness.ts";

scripted("a request gets the oracle's tokens and ends by length", {}, function* (h) {
  const a = h.start(promptOf(10), 5);
  yield;
  h.finish();
  assert.equal(ending(a), "length");
  assert.deepEqual(usage(a), { promptTokens: 10, completionTokens: 5, cachedTokens: 0 });
  h.assertEmpty();
});

scripted("no step computes more tokens than the budget", { maxBatchTokens: 32, slots: 4 }, function* (h) {
  for (let i = 0; i < 4; i++) h.start(promptOf(100, i + 1), 3);
  let before = 0;
  let steps = 0;
  while (h.loop.live > 0 || steps === 0) {
    yield;
    const { computed_tokens: computed } = h.loop.counters;
    assert.ok(computed - before <= 32, `one step computed ${computed - before} tokens`);
    before = computed;
    steps++;
  }
  assert.equal(h.loop.counters.computed_tokens, 4 * (100 + 2));
});

scripted(
  "a long prompt is computed in chunks while others decode every step",
  { maxBatchTokens: 16 },
  function* (h) {
    const short = h.start(promptOf(8), 40);
    yield;
    yield;
    const long = h.start(promptOf(160, 2), 2);
    const before = short.tokens.length;
    for (let i = 0; i < 10; i++) yield;
    assert.equal(long.tokens.length, 0);
    assert.equal(short.tokens.length - before, 10);
    h.finish();
  },
);

scripted("decode rows come before prompts that were admitted earlier", { maxBatchTokens: 16 }, function* (h) {
  const long = h.start(promptOf(150), 1);
  yield;
  const short = h.start(promptOf(2, 2), 1);
  h.finish();
  assert.ok(long.firstTick <= short.firstTick, "prompts share the budget in order of arrival");
});

scripted("a prompt that ends exactly at a page's end continues on a new page", {}, function* (h) {
  for (const length of [63, 64, 65, 127, 128, 129]) h.start(promptOf(length, length), 70);
  yield;
  h.finish();
  h.assertEmpty();
});

scripted("nobody overtakes the first waiting request", { pages: 10, slots: 4 }, function* (h) {
  const running = h.start(promptOf(64 * 6), 30);
  for (let i = 0; i < 4; i++) yield;
  const large = h.start(promptOf(64 * 6, 2), 1);
  const small = h.start(promptOf(10, 3), 1);
  for (let i = 0; i < 6; i++) yield;
  assert.equal(ending(running), "open");
  assert.equal(ending(small), "open", "the small one waits behind the large one");
  h.finish();
  assert.ok(large.firstTick <= small.firstTick);
});

scripted("an admission leaves the watermark available", { pages: 10, watermarkPages: 3 }, function* (h) {
  h.start(promptOf(64 * 4), 20);
  yield;
  yield;
  yield;
  h.start(promptOf(64 * 4, 2), 20); // 5 pages are left: 4 fit, but not with 3 spare
  for (let i = 0; i < 5; i++) yield;
  assert.equal(h.sequences.running.length, 1);
  assert.equal(h.sequences.waiting.length, 1);
  h.finish();
});

scripted(
  "the watermark keeps nobody waiting when nothing runs",
  { pages: 4, watermarkPages: 3 },
  function* (h) {
    const a = h.start(promptOf(64 * 3), 10);
    yield;
    h.finish();
    assert.equal(ending(a), "length");
  },
);

scripted(
  "two prompts in prefill that together exceed the pool both finish",
  { pages: 9, slots: 2 },
  function* (h) {
    const a = h.start(promptOf(64 * 5), 3);
    const b = h.start(promptOf(64 * 5, 2), 3);
    yield;
    h.finish();
    assert.deepEqual([ending(a), ending(b)], ["length", "length"]);
    assert.equal(h.loop.counters.preemptions, 0, "the second is not admitted before it fits");
  },
);

test("a plan's buffer takes admissions one after the other when they don't fit together", () => {
  const h = new Harness({ maxLen: 256, slots: 16, maxBatchTokens: 4096, pages: 64 });
  for (let i = 0; i < 16; i++) h.start(promptOf(200, i + 1), 4);
  h.tick();
  const admitted = h.sequences.running.length;
  assert.ok(admitted >= 1 && admitted < 16, `${admitted} admitted at once`);
  h.finish();
  for (const heard of h.heard.values()) h.assertOracle(heard);
  h.assertEmpty();
});

test("a prompt that can never fit is refused at once, the longest that fits is served", () => {
  const h = new Harness({ maxLen: 256, pages: 3 });
  const refused = h.start(promptOf(192), 1);
  const fits = h.start(promptOf(191), 50);
  h.tick();
  assert.equal(ending(refused), "prompt_too_long");
  h.finish();
  assert.equal(ending(fits), "length");
  assert.equal(usage(fits).completionTokens, 1, "maxTokens is clipped to what fits");
  h.assertEmpty();
});

test("a request that no plan could carry is refused at once, and the others go on", () => {
  const h = new Harness();
  const good = h.start(promptOf(5), 3);
  const sampling = (change: Partial<SamplingParams>) => ({ sampling: { ...GREEDY, ...change } });
  const refused = [
    h.start([], 5),
    h.start([1], 0),
    h.start([1], Number.NaN),
    h.start([-1], 1),
    h.start([1, 1000], 1),
    h.start([1], 1, sampling({ temperature: Number.NaN })),
    h.start([1], 1, sampling({ topK: 2.5 })),
    h.start([1], 1, sampling({ topLogprobs: 21 })),
    h.start([1], 1, sampling({ logitBias: [[1000, 1]] })),
    h.start([1], 1, sampling({ logitBias: [[1, Number.NaN]] })),
    h.start([1], 1, sampling({ logitBias: new Array(301).fill([1, 1]) })),
  ];
  h.tick();
  assert.deepEqual(refused.map(ending), new Array(refused.length).fill("invalid_request"));
  h.finish();
  assert.equal(ending(good), "length");
});

scripted("no more requests run at a time than allowed", { slots: 8, maxRunning: 2 }, function* (h) {
  for (let i = 0; i < 5; i++) h.start(promptOf(10, i + 1), 5);
  for (let i = 0; i < 8; i++) {
    yield;
    assert.ok(h.sequences.running.length <= 2);
  }
  h.finish();
});

test("a preempted request takes no place in the queue, neither then nor when it runs again", () => {
  const h = new Harness({ pages: 3, slots: 2, maxWaiting: 1, watermarkPages: 0, prefixCache: false });
  h.start(promptOf(64), 120);
  h.tick();
  const second = h.start(promptOf(60, 2), 70);
  h.tick();
  while (h.sequences.preemptions === 0) h.tick();
  const third = h.start(promptOf(4, 3), 1);
  h.tick();
  assert.equal(ending(third), "open");
  while (h.sequences.waiting.some((r) => r.handle === second.handle)) h.tick();
  h.finish();
  h.start(promptOf(100, 4), 50);
  h.tick();
  const accepted = h.start(promptOf(100, 6), 1);
  const refused = h.start(promptOf(100, 7), 1);
  h.tick();
  assert.deepEqual([ending(accepted), ending(refused)], ["open", "queue_full"]);
  h.finish();
});

test("the queue is bounded", () => {
  const h = new Harness({ slots: 1, maxRunning: 1, maxWaiting: 2 });
  const running = h.start(promptOf(4), 50);
  h.tick();
  const waiting = [h.start(promptOf(4, 2), 1), h.start(promptOf(4, 3), 1)];
  const refused = h.start(promptOf(4, 4), 1);
  h.tick();
  assert.deepEqual(waiting.map(ending), ["open", "open"]);
  assert.equal(ending(refused), "queue_full");
  h.finish();
  assert.equal(ending(running), "length");
});

test("the scheduler refuses options that could starve a sequence", () => {
  assert.throws(() => new Harness({ maxBatchTokens: 4, slots: 8 }), /maxBatchTokens/);
  assert.throws(() => new Harness({ maxRunning: 9, slots: 8 }), /maxRunning/);
});
