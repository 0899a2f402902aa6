// What goes wrong on the way into the KV cache is counted where an operator sees it.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { EngineEvent } from "../../../gpu-node/contract/engine.ts";
import { startEngine } from "../../../gpu-node/engine/client.ts";
import { GREEDY } from "../../../gpu-node/engine/sampling.ts";
import type { KvFormat } from "../../../gpu-node/kv/format.ts";
import { createMetrics } from "../../../gpu-node/server/metrics.ts";
import { type Recipe, type Stored, writeCheckpoint } from "../model/random-checkpoint.ts";
import { RECIPES } from "../model/recipes.ts";

const PLAIN = RECIPES["llama, biases everywhere, tied, transformers 4 keys, linear rope"];
const root = mkdtempSync(join(tmpdir(), "edgewise-faults-"));
after(() => rmSync(root, { recursive: true }));

/** Answers one request; gives its last event and the counters in /metrics. */
async function serveOnce(name: string, recipe: Recipe, kvFormat: KvFormat) {
  const dir = join(root, name);
  writeCheckpoint(dir, recipe);
  const engine = startEngine({
    runner: { kind: "model", dir, backend: "cpu", threads: 1, slots: 2, kvBytes: 2 ** 20, kvFormat },
  });
  try {
    await engine.ready();
    const request = { sampling: GREEDY, maxTokens: 4, stopTokens: [], minTokens: 0, salt: "", label: "" };
    const prompt = Int32Array.from([1, 2, 3]);
    let last: EngineEvent | undefined;
    for await (const event of engine.generate({ prompt, ...request }, new AbortController().signal)) {
      last = event;
    }
    // The counters are published at the end of the turn that gave the last event, which may have come earlier.
    const told = ({ finished_length, engine_restarts }: Record<string, number>) =>
      finished_length + engine_restarts;
    while (told(engine.status().counters) === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    const { text } = await createMetrics(() => engine.status()).expose();
    const counter = (name: string) =>
      Number(new RegExp(`^edgewise_engine_${name}_total (\\d+)$`, "m").exec(text)?.[1]);
    return { last, saturated: counter("kv_saturated"), nan: counter("kv_nan") };
  } finally {
    await engine.close();
  }
}

test("values beyond FP8 are counted, with the scales of the checkpoint", async () => {
  const small = { ...PLAIN, scalars: { "model.layers.1.self_attn.v_scale": 1e-9 } };
  const { last, saturated, nan } = await serveOnce("small scale", small, "fp8");
  assert.equal(last?.type, "finish");
  // Three tokens of the prompt and three sampled ones, each with a value vector of 24 in one of two layers.
  assert.deepEqual([saturated, nan], [6 * 24, 0]);
  const fits = await serveOnce("plain", PLAIN, "fp8");
  assert.deepEqual([fits.last?.type, fits.saturated, fits.nan], ["finish", 0, 0]);
});

test("a NaN ends the request and is counted, although the step that met it failed", async () => {
  const alter = (files: Map<string, Stored>) => {
    for (const [name, { bytes }] of files)
      if (name.endsWith("layers.0.self_attn.k_proj.bias")) bytes.fill(0xff);
  };
  const { last, saturated, nan } = await serveOnce("nan", { ...PLAIN, alter }, "bf16");
  assert.ok(last?.type === "error" && last.code === "engine_failed");
  assert.deepEqual([saturated, nan], [0, 3 * 24]);
});
