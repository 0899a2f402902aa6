// The whole engine over real models: tokens and log probabilities don't depend on what else happens.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Loop, type LoopOptions } from "../../../gpu-node/engine/loop.ts";
import type { InboxMessage } from "../../../gpu-node/engine/messages.ts";
import type { ModelRunner } from "../../../gpu-node/engine/model-runner.ts";
import { openModelRunner } from "../../../gpu-node/engine/open-runner.ts";
import { PLAN_LAYOUT as L, PlanWriter } from "../../../gpu-node/engine/plan.ts";
import { unpackTokens } from "../../../gpu-node/engine/results.ts";
import { GREEDY } from "../../../gpu-node/engine/sampling.ts";

const BOUND = 2e-5;
const open: ModelRunner[] = [];
after(() => {
  for (const runner of open) runner.dispose();
});

interface Size {
  maxTokens?: number;
  depth?: number;
}

function runnerOf(model: string, { maxTokens = 256, depth = 1 }: Size = {}): ModelRunner {
  const dir = fileURLToPath(new URL(`../../fixtures/golden/${model}`, import.meta.url));
  const precision = { activations: "f32", kvFormat: "f32" } as const;
  const size = { slots: 8, maxLen: 512, maxTokens, kvBytes: 2 ** 26, depth };
  const runner = openModelRunner({ kind: "model", dir, backend: "cpu", threads: 2, ...precision, ...size });
  open.push(runner);
  return runner;
}

interface Wanted {
  prompt: number[];
  count: number;
  temperature?: number;
  /** Turn of the loop at which it arrives. */
  at?: number;
}

interface Got {
  tokens: number[];
  logprobs: number[];
  cached: number;
}

/** Runs the requests through a loop of their own with all invariants checked. */
function generate(runner: ModelRunner, wanted: Wanted[], options: Partial<LoopOptions> = {}): Got[] {
  const inbox: InboxMessage[] = [];
  const got: Got[] = wanted.map(() => ({ tokens: [], logprobs: [], cached: -1 }));
  const { limits } = runner;
  const loop = new Loop(
    runner,
    performance,
    { next: () => inbox.shift() ?? null },
    {
      post(tokens, ended) {
        unpackTokens(tokens, (handle, token, logprobs) => {
          got[handle].tokens.push(token);
          got[handle].logprobs.push(logprobs?.logprob ?? Number.NaN);
        });
        for (const end of ended) {
          assert.ok("usage" in end, `request ${end.handle} failed: ${"message" in end && end.message}`);
          got[end.handle].cached = end.usage.cachedTokens;
        }
      },
    },
    {
      maxBatchTokens: limits.maxTokens,
      maxRunning: limits.slots,
      maxWaiting: 100,
      watermarkPages: 1,
      invariants: true,
      ...options,
    },
  );
  const last = Math.max(...wanted.map(({ at }) => at ?? 0));
  for (let turn = 0; ; turn++) {
    for (const [handle, { prompt, count, temperature = 0, at = 0 }] of wanted.entries()) {
      if (at !== turn) continue;
      const sampling = { ...GREEDY, temperature, seedLow: handle, topLogprobs: 0 };
      const request = { prompt: Int32Array.from(prompt), sampling, maxTokens: count, stopTokens: [] };
      inbox.push({ kind: "generate", handle, request: { ...request, minTokens: 0, salt: "a", label: "" } });
    }
    if (!loop.tick() && turn >= last) break;
  }
  const { pool } = loop.scheduler.sequences;
  assert.equal(pool.free + pool.cached, pool.total);
  return got;
}

function promptOf(length: number, seed: number, vocab: number): number[] {
  return Array.from({ length }, (_, i) => (i * 37 + seed * 101 + ((i * i) % 11)) % vocab);
}

function assertSame(got: Got, want: Got, what: string): void {
  assert.deepEqual(got.tokens, want.tokens, `${what}: tokens`);
  for (const [i, logprob] of got.logprobs.entries()) {
    const difference = Math.abs(logprob - want.logprobs[i]);
    assert.ok(difference <= BOUND, `${what}: log probability ${i} differs by ${difference}`);
  }
}

for (const model of ["llama", "deepseek-v3"]) {
  const runner = runnerOf(model);
  const vocab = runner.limits.vocab;
  const lengths = [5, 63, 64, 130, 200];
  const wanted = lengths.map((length, i) => ({
    prompt: promptOf(length, i, vocab),
    count: 40,
    temperature: i % 2 === 0 ? 0 : 0.8,
  }));
  // The seed is the handle: each request keeps its place in the list.
  const alone = wanted.map(
    (_, i) =>
      generate(
        runner,
        wanted.map((w, j) => (j === i ? w : { ...w, count: 1 })),
        { maxRunning: 1 },
      )[i],
  );

  test(`${model}: a request gets the same in a batch as alone`, () => {
    const batch = generate(
      runner,
      wanted.map((w, i) => ({ ...w, at: 3 * i })),
    );
    for (const [i, got] of batch.entries()) assertSame(got, alone[i], `prompt of ${lengths[i]}`);
  });

  for (const maxBatchTokens of [8, 64]) {
    test(`${model}: a request gets the same when ${maxBatchTokens} tokens make a step`, () => {
      const batch = generate(runner, wanted, { maxBatchTokens });
      for (const [i, got] of batch.entries()) assertSame(got, alone[i], `prompt of ${lengths[i]}`);
    });
  }

  test(`${model}: a request gets the same after preemptions`, () => {
    const batch = generate(runner, wanted, { preemptEvery: 7, prefixCache: false });
    for (const [i, got] of batch.entries()) assertSame(got, alone[i], `prompt of ${lengths[i]}`);
  });

  test(`${model}: a request gets the same after preemptions that find their pages cached`, () => {
    const batch = generate(runner, wanted, { preemptEvery: 5 });
    for (const [i, got] of batch.entries()) assertSame(got, alone[i], `prompt of ${lengths[i]}`);
  });

  test(`${model}: a request gets the same with a prefix hit`, () => {
    const prompt = promptOf(200, 9, vocab);
    const twice = generate(runner, [
      { prompt, count: 30 },
      { prompt, count: 30, at: 40 },
    ]);
    assert.deepEqual(
      twice.map(({ cached }) => cached),
      [0, 192],
    );
    assertSame(twice[1], twice[0], "second request");
  });

  test(`${model}: a request gets the same at depth 2`, () => {
    const batch = generate(runnerOf(model, { depth: 2 }), wanted);
    for (const [i, got] of batch.entries()) assertSame(got, alone[i], `prompt of ${lengths[i]}`);
  });

  test(`${model}: the null page is all zeros after warm-up, graphs and traffic`, () => {
    for (const { pool } of runner.model.kv) {
      const page = new Uint8Array(runner.device.read(pool.slice(0, 0, 1)));
      assert.ok(page.every((byte) => byte === 0));
    }
  });
}

test("a warm-up writes nothing into the pool", () => {
  const runner = runnerOf("llama");
  for (const { pool } of runner.model.kv) {
    assert.ok(new Uint8Array(runner.device.read(pool)).every((byte) => byte === 0));
  }
});

test("a plan that the validator refuses launches nothing", () => {
  const runner = runnerOf("llama");
  const writer = new PlanWriter(runner.limits);
  writer.begin(1);
  writer.pages(0, Int32Array.of(1), 0, 1);
  writer.history(0, Int32Array.of(5), 0, 1);
  writer.row(0, 1, 0, true, 1, 1);
  const plan = writer.finish();
  plan[L.header + L.update_header] = runner.limits.pages;
  const { launches } = runner.device;
  assert.throws(() => runner.submit(plan), /plan: page/);
  assert.equal(runner.device.launches, launches);
});

test("logits of a whole sequence are the same in chunks of 1, 7, 64 and all", () => {
  const runner = runnerOf("deepseek-v3");
  const tokens = Int32Array.from(promptOf(150, 3, runner.limits.vocab));
  const evaluate = (chunk: number) => {
    const all = new Float32Array(tokens.length * runner.limits.vocab);
    runner.evaluate(tokens, chunk, (first, _, logits) => all.set(logits, first * runner.limits.vocab));
    return all;
  };
  const whole = evaluate(150);
  for (const chunk of [1, 7, 64]) {
    const difference = evaluate(chunk).reduce((most, x, i) => Math.max(most, Math.abs(x - whole[i])), 0);
    assert.ok(difference <= BOUND, `chunk ${chunk}: ${difference}`);
  }
});
