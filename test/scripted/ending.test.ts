// Stop tokens, usage, faults, draining.
import assert from "node:assert/strict";
import { test } from "node:test";
import { simToken } from "../../gpu-node/engine/sim-runner.ts";
import { ending, Harness, promptOf, scripted, usage } from "./harness.ts";

/** The oracle's n-th output token (1 = first). */
function output(prompt: number[], n: number, vocab = 1000): number {
  const tokens = [...prompt];
  for (let i = 0; i < n; i++) tokens.push(simToken(tokens, tokens.length, vocab));
  return tokens.at(-1)!;
}

scripted(
  "a stop token ends the sequence, is reported and counted, and nothing after it is",
  {},
  function* (h) {
    const prompt = promptOf(20);
    const a = h.start(prompt, 50, { stopTokens: [output(prompt, 7)] });
    yield;
    h.finish();
    assert.equal(ending(a), "stop");
    assert.equal(a.tokens.length, 7);
    assert.equal(a.tokens[6], output(prompt, 7));
    assert.equal(usage(a).completionTokens, 7);
    h.assertEmpty();
  },
);

scripted("stop tokens are ignored until minTokens came out", {}, function* (h) {
  const prompt = promptOf(20);
  const stopTokens = [output(prompt, 3), output(prompt, 5), output(prompt, 9)];
  const a = h.start(prompt, 50, { stopTokens, minTokens: 5 });
  yield;
  h.finish();
  assert.equal(usage(a).completionTokens, 9);
});

test("at depth 2 the token computed beyond a stop is dropped and its row counted as stale", () => {
  const h = new Harness({}, 2);
  const prompt = promptOf(20);
  h.start(prompt, 50, { stopTokens: [output(prompt, 4)] });
  h.finish();
  assert.equal(h.loop.counters.stale_rows, 1);
  assert.equal(h.loop.counters.generated_tokens, 4);
});

scripted("no row is computed beyond maxTokens", {}, function* (h) {
  h.start(promptOf(20), 6);
  yield;
  h.finish();
  assert.equal(h.loop.counters.computed_tokens, 20 + 5, "the last token needs no KV");
  assert.equal(h.loop.counters.stale_rows, 0);
});

scripted("the last position of the longest sequence is usable", { maxLen: 128, pages: 8 }, function* (h) {
  const a = h.start(promptOf(100), 1000);
  yield;
  h.finish();
  assert.deepEqual(usage(a), { promptTokens: 100, completionTokens: 28, cachedTokens: 0 });
});

test("a row whose logits are not numbers ends its request with an error, and no token", () => {
  const h = new Harness({ sim: { nanAtStep: 3 } });
  const a = h.start(promptOf(20), 10);
  h.finish();
  assert.equal(ending(a), "engine_failed");
  assert.equal(a.tokens.length, 2);
  h.assertEmpty();
});

test("a failed kernel is thrown to whoever drives the loop", () => {
  const h = new Harness({ sim: { failAtStep: 3 } });
  h.start(promptOf(20), 10);
  assert.throws(() => h.finish(), /kernel failed/);
});

scripted("draining refuses new requests and finishes the others", {}, function* (h) {
  const a = h.start(promptOf(20), 10);
  yield;
  h.send({ kind: "drain" });
  const late = h.start(promptOf(5), 1);
  h.finish();
  assert.deepEqual([ending(a), ending(late)], ["length", "draining"]);
});

scripted("cutting ends what runs and what waits with an error", { slots: 1, maxRunning: 1 }, function* (h) {
  const a = h.start(promptOf(20), 100);
  const b = h.start(promptOf(20, 2), 100);
  for (let i = 0; i < 5; i++) yield;
  h.send({ kind: "cut" });
  h.finish();
  assert.deepEqual([ending(a), ending(b)], ["draining", "draining"]);
  h.assertEmpty();
});

test("log probabilities arrive with the tokens of a request that wants them, and of no other", async () => {
  const { unpackTokens } = await import("../../gpu-node/engine/results.ts");
  const { GREEDY } = await import("../../gpu-node/engine/sampling.ts");
  const { Loop } = await import("../../gpu-node/engine/loop.ts");
  const { SimRunner } = await import("../../gpu-node/engine/sim-runner.ts");
  const limits = { slots: 2, maxPages: 4, maxLen: 256, pages: 9, vocab: 100, maxTokens: 64, maxRows: 2 };
  const request = (topLogprobs: number) => ({
    prompt: Int32Array.of(1, 2, 3),
    sampling: { ...GREEDY, topLogprobs },
    maxTokens: 1,
    stopTokens: [],
    minTokens: 0,
    salt: "",
    label: "",
  });
  const inbox = [
    { kind: "generate" as const, handle: 1, request: request(-1) },
    { kind: "generate" as const, handle: 2, request: request(1) },
  ];
  const got: [number, number | undefined][] = [];
  const post = (tokens: Int32Array) =>
    unpackTokens(tokens, (handle, _, logprobs) => got.push([handle, logprobs?.logprob]));
  const options = { maxBatchTokens: 64, maxRunning: 2, maxWaiting: 9, watermarkPages: 0 };
  const next = () => inbox.shift() ?? null;
  const loop = new Loop(new SimRunner(limits), { now: () => 0 }, { next }, { post }, options);
  while (loop.tick());
  assert.deepEqual(got, [
    [1, undefined],
    [2, -0.5],
  ]);
});
