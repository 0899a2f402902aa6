// Page tags in a real engine: what they cost, what is told of them, and that off costs nothing.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { startEngine } from "../../../gpu-node/engine/client.ts";
import { Loop } from "../../../gpu-node/engine/loop.ts";
import type { InboxMessage } from "../../../gpu-node/engine/messages.ts";
import { ModelRunner } from "../../../gpu-node/engine/model-runner.ts";
import { PLAN_LAYOUT as L, planCapacity } from "../../../gpu-node/engine/plan.ts";
import { unpackTokens } from "../../../gpu-node/engine/results.ts";
import { GREEDY } from "../../../gpu-node/engine/sampling.ts";
import type { IntegrityMode } from "../../../gpu-node/kv/tags.ts";
import { loadModel } from "../../../gpu-node/model/load-model.ts";
import { type OpDevice, openDevice } from "../../../gpu-node/native/device.ts";
import { loadAddon } from "../../../gpu-node/native/load.ts";
import { createMetrics } from "../../../gpu-node/server/metrics.ts";

const dir = fileURLToPath(new URL("../../fixtures/golden/llama", import.meta.url));
const MODEL = { kind: "model", dir, backend: "cpu", threads: 1, slots: 4, maxLen: 256 } as const;
const LIMITS = { slots: 4, maxPages: 4, maxLen: 256, pages: 17, vocab: 0, maxTokens: 64, maxRows: 4 };

interface Step {
  launches: number;
  uploads: number;
  downloads: number;
  planInts: number;
}

interface Used {
  /** What the runner itself allocates, as `dtype[shape]`. */
  allocated: string[];
  ops: Set<string>;
  uploads: number;
  downloads: number;
}

/** The device, with what is asked of it written down. */
function watched(device: OpDevice, used: Used): OpDevice {
  const ops = Object.fromEntries(
    Object.entries(device.ops).map(([name, op]) => [
      name,
      (args: never) => {
        used.ops.add(name);
        (op as (args: never) => void)(args);
      },
    ]),
  );
  return new Proxy(device, {
    get(target, name) {
      if (name === "ops") return ops;
      const value = Reflect.get(target, name, target);
      if (typeof value !== "function") return value;
      return (...args: unknown[]) => {
        if (name === "alloc" || name === "fromHost") used.allocated.push(`${args[0]}[${args[1]}]`);
        if (name === "upload") used.uploads++;
        if (name === "download") used.downloads++;
        return value.apply(target, args);
      };
    },
  });
}

/** Serves three requests; tells what each step took of the device, and the tokens. */
function run(integrity: IntegrityMode) {
  const device = openDevice({ backend: "cpu", threads: 1 });
  const { mapFile } = loadAddon();
  const model = loadModel(dir, device, { activations: "f32", kvFormat: "f32", mapFile });
  const limits = { ...LIMITS, vocab: model.spec.vocab };
  const used: Used = { allocated: [], ops: new Set(), uploads: 0, downloads: 0 };
  const runner = new ModelRunner(watched(device, used), model, limits, 2, integrity === "tags");
  const steps: Step[] = [];
  const submit = runner.submit.bind(runner);
  runner.submit = (plan, tags) => {
    const [launches, uploads, downloads] = [device.launches, used.uploads, used.downloads];
    const ticket = submit(plan, tags);
    steps.push({
      launches: device.launches - launches,
      uploads: used.uploads - uploads,
      downloads: used.downloads - downloads,
      planInts: plan.length,
    });
    return ticket;
  };
  const inbox: InboxMessage[] = [30, 100, 30].map((length, i) => {
    const prompt = Int32Array.from({ length }, (_, j) => (j * 37 + i) % 60);
    const bounds = { sampling: GREEDY, maxTokens: 20, stopTokens: [], minTokens: 0 };
    return { kind: "generate", handle: i + 1, request: { prompt, ...bounds, salt: "a", label: "" } };
  });
  const tokens: number[] = [];
  const outbox = {
    post: (packed: Int32Array) => unpackTokens(packed, (handle, token) => tokens.push(handle, token)),
  };
  const loop = new Loop(runner, performance, { next: () => inbox.shift() ?? null }, outbox, {
    maxBatchTokens: 64,
    maxRunning: 4,
    maxWaiting: 10,
    watermarkPages: 0,
    selfTestMs: 0,
    integrity,
  });
  while (loop.tick());
  runner.dispose();
  return { steps, tokens, used, limits };
}

test("off takes of the device what steps need without page tags, and nothing else", () => {
  const { steps, used, limits } = run("off");
  const { slots, maxPages, maxLen, maxRows } = limits;
  assert.deepEqual(used.allocated, [
    `i32[${planCapacity(limits)}]`,
    `i32[${slots},${maxPages}]`,
    `i32[${slots},${maxLen}]`,
    `i32[${slots},${L.param_count}]`,
    `i32[${slots},${L.max_bias}]`,
    `f32[${slots},${L.max_bias}]`,
    `i32[${maxRows * L.result_stride}]`,
  ]);
  assert.deepEqual(
    [...used.ops].filter((name) => name.includes("tag")),
    [],
  );
  // The plan goes up; the counters of the KV cache and the results come down.
  for (const { uploads, downloads } of steps) assert.deepEqual([uploads, downloads], [1, 2]);
});

test("tags cost three launches and one upload a step, the same plans, and change no token", () => {
  const [off, tags] = [run("off"), run("tags")];
  assert.equal(off.tokens.length, 2 * 60);
  assert.deepEqual(tags.tokens, off.tokens);
  const more = off.steps.map((step) => ({ ...step, launches: step.launches + 3, uploads: step.uploads + 1 }));
  assert.deepEqual(tags.steps, more);
});

async function serve(integrity: IntegrityMode, selfTestMs: number) {
  const engine = startEngine({
    runner: { ...MODEL, kvBytes: 2 ** 22, integrity },
    scheduler: { selfTestMs },
  });
  try {
    await engine.ready();
    const limits = { sampling: GREEDY, maxTokens: 20, stopTokens: [], minTokens: 0, salt: "a", label: "" };
    const generate = async () => {
      let last = "";
      const prompt = Int32Array.from([1, 2, 3]);
      for await (const event of engine.generate({ prompt, ...limits }, new AbortController().signal))
        last = event.type;
      return last;
    };
    assert.equal(await generate(), "finish");
    // A turn later, what it counted is published.
    for (
      let i = 0;
      i < 500 && integrity === "tags" && (engine.status().counters.kv_tag_self_tests ?? 0) < 2;
      i++
    )
      await new Promise((resolve) => setTimeout(resolve, 5));
    return { status: engine.status(), text: (await createMetrics(() => engine.status()).expose()).text };
  } finally {
    await engine.close();
  }
}

test("an engine with tags tells its coverage and proves its alarm again and again", async () => {
  const { status, text } = await serve("tags", 1);
  const { counters } = status;
  assert.equal(status.integrity, "ok");
  assert.ok(counters.kv_tag_self_tests >= 2 && status.selfTestAge !== null);
  assert.equal(counters.kv_tag_steps_checked, counters.steps);
  assert.ok(counters.kv_tag_pages_checked_decode > 0);
  assert.equal(counters.kv_tag_pages_checked_decode, counters.kv_tag_pages_read_decode);
  assert.equal(counters.kv_tag_failures_mapping, 0, "the self-test's own does not count");
  assert.equal(counters.kv_tag_incidents, 0);
  assert.match(text, /^edgewise_integrity 1$/m);
  assert.match(text, /^edgewise_engine_kv_tag_pages_checked_decode_total \d+$/m);
});

test("an engine without tags tells no counts of what it did not check", async () => {
  const { status, text } = await serve("off", 1);
  assert.equal(status.integrity, "off");
  assert.deepEqual(
    Object.keys(status.counters).filter((name) => name.startsWith("kv_tag_")),
    [],
  );
  assert.doesNotMatch(text, /kv_tag_/);
  assert.match(text, /^edgewise_integrity 0$/m);
});
