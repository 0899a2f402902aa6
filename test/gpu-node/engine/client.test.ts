// The engine's thread and its client, over the oracle runner.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import type { EngineEvent, GenerateRequest } from "../../../gpu-node/contract/engine.ts";
import { type EngineClient, type EngineOptions, startEngine } from "../../../gpu-node/engine/client.ts";
import { GREEDY } from "../../../gpu-node/engine/sampling.ts";
import { type SimOptions, simToken } from "../../../gpu-node/engine/sim-runner.ts";

const VOCAB = 1000;

function sim(more: SimOptions = {}): EngineOptions["runner"] {
  return { kind: "sim", slots: 8, maxLen: 512, maxTokens: 128, pages: 65, vocab: VOCAB, ...more };
}

async function withEngine(
  options: Partial<EngineOptions>,
  body: (engine: EngineClient) => Promise<void>,
): Promise<void> {
  const engine = startEngine({ runner: sim(), ...options });
  try {
    await engine.ready();
    await body(engine);
  } finally {
    await engine.close();
  }
}

function request(prompt: number[], maxTokens: number, more: Partial<GenerateRequest> = {}): GenerateRequest {
  const base = { sampling: GREEDY, maxTokens, stopTokens: [], minTokens: 0, salt: "a", label: "" };
  return { prompt: Int32Array.from(prompt), ...base, ...more };
}

interface Answer {
  tokens: number[];
  last: EngineEvent;
}

async function collect(events: AsyncIterable<EngineEvent>): Promise<Answer> {
  const tokens: number[] = [];
  let last: EngineEvent | undefined;
  for await (const event of events) {
    if (event.type === "tokens") tokens.push(...event.tokens);
    last = event;
  }
  assert.ok(last && last.type !== "tokens", "the last event is an end");
  return { tokens, last };
}

function oracle(prompt: number[], count: number): number[] {
  const tokens = [...prompt];
  for (let i = 0; i < count; i++) tokens.push(simToken(tokens, tokens.length, VOCAB));
  return tokens.slice(prompt.length);
}

/** Waits until `holds`, or fails after 5 s. */
async function eventually(holds: () => boolean, what: string): Promise<void> {
  for (let i = 0; i < 500; i++) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.fail(`not reached: ${what}`);
}

const never = new AbortController().signal;

test("64 requests at once all get their tokens, and everything is free afterwards", async () => {
  await withEngine({}, async (engine) => {
    const prompts = Array.from({ length: 64 }, (_, i) => Array.from({ length: 5 + i }, (_, j) => i * 7 + j));
    const answers = await Promise.all(prompts.map((p) => collect(engine.generate(request(p, 20), never))));
    for (const [i, answer] of answers.entries()) {
      assert.deepEqual(answer.tokens, oracle(prompts[i], 20));
      const usage = { promptTokens: 5 + i, completionTokens: 20, cachedTokens: 0 };
      assert.deepEqual(answer.last, { type: "finish", reason: "length", usage });
    }
    await eventually(() => engine.status().pagesOwned === 0, "no page owned");
    const status = engine.status();
    assert.equal(status.pagesFree + status.pagesCached, status.pagesTotal);
    assert.equal(status.slotsFree, 8);
    assert.equal(status.counters.generated_tokens, 64 * 20);
  });
});

test("aborting the signal ends the iteration with abort and frees the request", async () => {
  await withEngine({ runner: sim({ stepMs: 2 }) }, async (engine) => {
    const controller = new AbortController();
    const events = engine.generate(request([1, 2, 3], 400), controller.signal);
    const seen: string[] = [];
    for await (const event of events) {
      seen.push(event.type === "finish" ? event.reason : event.type);
      if (seen.length === 3) controller.abort();
    }
    assert.equal(seen.at(-1), "abort");
    assert.equal(seen.filter((type) => type === "abort").length, 1);
    await eventually(() => engine.status().pagesOwned === 0 && engine.status().running === 0, "freed");
  });
});

test("a reader that leaves the loop early aborts its request", async () => {
  await withEngine({ runner: sim({ stepMs: 2 }) }, async (engine) => {
    for await (const event of engine.generate(request([1, 2, 3], 400), never)) {
      if (event.type === "tokens") break;
    }
    await eventually(() => engine.status().counters.finished_abort === 1, "aborted");
    assert.equal(engine.status().running, 0);
  });
});

test("a signal that is aborted already starts nothing", async () => {
  await withEngine({}, async (engine) => {
    const { last } = await collect(engine.generate(request([1], 5), AbortSignal.abort()));
    assert.equal(last.type === "finish" && last.reason, "abort");
    assert.equal(engine.status().counters.steps, 0);
  });
});

test("a refused request hears why, and whether to try again", async () => {
  await withEngine({}, async (engine) => {
    const { last } = await collect(engine.generate(request(new Array(600).fill(1), 5), never));
    assert.ok(last.type === "error");
    assert.deepEqual([last.code, last.retryable], ["prompt_too_long", false]);
    assert.match(last.message, /600 tokens, at most 511/);
  });
});

test("after a crash every stream ends with a retryable error, and the engine serves again", async () => {
  const messages: string[] = [];
  const log = (message: string) => messages.push(message);
  await withEngine({ runner: sim({ failAtStep: 5 }), log }, async (engine) => {
    const answers = await Promise.all([1, 2].map((p) => collect(engine.generate(request([p], 50), never))));
    for (const { last } of answers) {
      assert.ok(last.type === "error");
      assert.deepEqual([last.code, last.retryable], ["engine_failed", true]);
    }
    assert.deepEqual(messages, ["engine: sim: kernel failed"]);
    assert.equal(engine.status().state, "loading", "failed would be final");
    await engine.ready();
    assert.equal(engine.status().state, "ready");
    assert.equal(engine.status().counters.engine_restarts, 1);
    const { tokens } = await collect(engine.generate(request([3], 3), never));
    assert.deepEqual(tokens, oracle([3], 3));
  });
});

test("an engine that crashes too often stays down, says so, and refuses at once", async () => {
  const down = Promise.withResolvers<string>();
  const engine = startEngine({ runner: sim({ failAtStep: 1 }), restarts: 1, onFatal: down.resolve });
  for (let i = 0; i < 2; i++) {
    await engine.ready();
    await collect(engine.generate(request([1], 5), never));
  }
  assert.match(await down.promise, /kernel failed/);
  assert.equal(engine.status().state, "failed");
  const { last } = await collect(engine.generate(request([1], 5), never));
  assert.equal(last.type === "error" && last.code, "engine_failed");
  await Promise.all([engine.close(), engine.close()]);
});

test("closing ends open streams with an error", async () => {
  const engine = startEngine({ runner: sim({ stepMs: 2 }) });
  await engine.ready();
  const running = collect(engine.generate(request([1, 2], 400), never));
  await engine.close();
  const { last } = await running;
  assert.equal(last.type, "error");
});

test("a model that can't be loaded is not retried", async () => {
  const down = Promise.withResolvers<string>();
  const runner = { kind: "model", dir: "/nonexistent", backend: "cpu" } as const;
  const engine = startEngine({ runner, onFatal: down.resolve });
  await assert.rejects(engine.ready(), /nonexistent/);
  assert.match(await down.promise, /nonexistent/);
  assert.equal(engine.status().state, "failed");
});

test("over a real model, 64 requests with clients that leave at random leave nothing behind", async () => {
  const dir = fileURLToPath(new URL("../../fixtures/golden/llama", import.meta.url));
  const size = { slots: 8, maxLen: 256, kvBytes: 2 ** 20, maxTokens: 64 };
  const runner = { kind: "model", dir, backend: "cpu", threads: 2, ...size } as const;
  await withEngine({ runner }, async (engine) => {
    const answers = Array.from({ length: 64 }, async (_, i) => {
      const leave = new AbortController();
      const prompt = Array.from({ length: 10 + 2 * i }, (_, j) => (i * 31 + j * 7) % engine.vocabSize);
      let tokens = 0;
      for await (const event of engine.generate(request(prompt, 30), leave.signal)) {
        if (event.type === "tokens") tokens += event.tokens.length;
        if (i % 3 === 0 && tokens > i % 7) leave.abort();
        if (event.type === "finish" && i % 3 !== 0) assert.equal(event.reason, "length");
      }
      if (i % 3 !== 0) assert.equal(tokens, 30);
    });
    await Promise.all(answers);
    await eventually(() => engine.status().pagesOwned === 0, "no page owned");
    const status = engine.status();
    assert.equal(status.pagesFree + status.pagesCached, status.pagesTotal);
    assert.deepEqual([status.running, status.waiting, status.slotsFree], [0, 0, 8]);
    assert.equal(status.counters.finished_length + status.counters.finished_abort, 64);
  });
});

test("the heartbeat moves while the engine is idle", async () => {
  await withEngine({}, async (engine) => {
    const before = engine.status().heartbeat;
    await eventually(() => engine.status().heartbeat > before + 1, "two heartbeats");
    assert.ok(engine.status().heartbeatAge < 2000);
  });
});

test("draining lets running requests finish and refuses new ones", async () => {
  await withEngine({ runner: sim({ stepMs: 1 }) }, async (engine) => {
    const running = collect(engine.generate(request([1, 2], 30), never));
    const drained = engine.drain(10_000);
    const { last } = await collect(engine.generate(request([3], 5), never));
    assert.equal(last.type === "error" && last.code, "draining");
    assert.equal(engine.status().state, "draining");
    assert.equal((await running).tokens.length, 30);
    await drained;
  });
});

test("what has not finished when draining ends gets a retryable error", async () => {
  await withEngine({ runner: sim({ stepMs: 5 }) }, async (engine) => {
    const running = collect(engine.generate(request([1, 2], 500), never));
    await engine.drain(50);
    const { last } = await running;
    assert.ok(last.type === "error");
    assert.deepEqual([last.code, last.retryable], ["draining", true]);
  });
});
