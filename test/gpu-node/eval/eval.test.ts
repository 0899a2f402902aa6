// `edgewise eval` over a small checkpoint, through the engine's runner.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { openModelRunner } from "../../../gpu-node/engine/open-runner.ts";
import { evaluateLogits } from "../../../gpu-node/eval/logits.ts";
import { argmax } from "../../../gpu-node/eval/metrics.ts";
import type { KvFormat } from "../../../gpu-node/kv/format.ts";
import { oracleLogits } from "../model/oracle.ts";
import { type Config, safetensors, writeCheckpoint } from "../model/random-checkpoint.ts";
import { RECIPES } from "../model/recipes.ts";

const root = mkdtempSync(join(tmpdir(), "edgewise-eval-"));
after(() => rmSync(root, { recursive: true }));

const GQA = RECIPES["llama without head_dim, llama3 rope, three shards"];
const MLA = RECIPES["deepseek-v3 without a query projection, with biases, half-split rope"];
const TOKENS = Array.from({ length: 20 }, (_, i) => (i * 37 + 5) % 131);
const VOCAB = 131;

/** A checkpoint with golden files beside it, the answers being the oracle's. */
function checkpoint(name: string, recipe: typeof GQA): string {
  const dir = join(root, name);
  const values = writeCheckpoint(dir, recipe);
  const flat = (rows: Float64Array[]) => Float32Array.from(rows.flatMap((row) => [...row]));
  const logits = flat(oracleLogits(recipe.config as Config, values, TOKENS));
  const tokens = Int32Array.from(TOKENS);
  const golden = safetensors(
    new Map([
      ["input_ids", { dtype: "I32", shape: [TOKENS.length], bytes: new Uint8Array(tokens.buffer) }],
      ["logits", { dtype: "F32", shape: [TOKENS.length, VOCAB], bytes: new Uint8Array(logits.buffer) }],
    ]),
  );
  writeFileSync(join(dir, "golden.safetensors"), golden);
  const continuation: number[] = [];
  for (let i = 0; i < 5; i++) {
    const rows = oracleLogits(recipe.config as Config, values, [...TOKENS, ...continuation]);
    continuation.push(argmax(Float32Array.from(rows.at(-1) as Float64Array)));
  }
  writeFileSync(join(dir, "golden.json"), JSON.stringify({ greedy_continuation: continuation }));
  return dir;
}

const edgewise = (...args: string[]) =>
  execFileSync(process.execPath, ["gpu-node/cli.ts", "eval", ...args], { encoding: "utf8" });

test("eval logits prints every field, and float32 reaches the oracle", () => {
  const dir = checkpoint("gqa", GQA);
  const golden = join(dir, "golden.safetensors");
  const flags = ["--activations", "f32", "--kv", "f32", "--backend", "cpu", "--chunk", "7", "--json"];
  const report = JSON.parse(edgewise("logits", "--model", dir, "--golden", golden, ...flags));
  const { max_abs, ...rest } = report;
  assert.ok(max_abs <= 2e-5, `max_abs ${max_abs}`);
  assert.deepEqual(Object.keys(rest).sort(), [
    "activations",
    "backend",
    "chunk",
    "kv",
    "max_kl",
    "mean_abs",
    "mean_kl",
    "median_kl",
    "p90_kl",
    "pool_rows_read",
    "tokens",
    "top1_agreement",
  ]);
  const { backend, activations, kv, chunk, tokens, top1_agreement } = report;
  assert.deepEqual(
    [backend, activations, kv, chunk, tokens, top1_agreement],
    ["cpu", "f32", "f32", 7, 20, 1],
  );
  // Chunks of 7, 7 and 6 tokens read 0, 7 and 14 rows in each of 3 layers.
  assert.equal(report.pool_rows_read, 3 * 21);
});

test("with an FP8 cache the default chunk is one token, so that every token reads the pool", () => {
  const dir = checkpoint("fp8-default", GQA);
  const golden = join(dir, "golden.safetensors");
  const report = JSON.parse(edgewise("logits", "--model", dir, "--golden", golden, "--kv", "fp8", "--json"));
  assert.equal(report.chunk, 1);
  assert.equal(report.pool_rows_read, (3 * 20 * 19) / 2);
  assert.ok(report.max_abs > 0);
});

test("eval greedy continues as the oracle does", () => {
  const dir = checkpoint("greedy", MLA);
  const report = JSON.parse(
    edgewise("greedy", "--model", dir, "--activations", "f32", "--kv", "f32", "--json"),
  );
  assert.equal(report.match, true);
  assert.equal(report.matched, 5);
});

function run(dir: string, kvFormat: KvFormat, chunk: number): Float32Array {
  const ours = new Float32Array(TOKENS.length * VOCAB);
  const maxLen = TOKENS.length;
  const settings = { backend: "cpu", activations: "f32", slots: 1, maxLen, maxTokens: maxLen } as const;
  const runner = openModelRunner({ kind: "model", dir, kvFormat, threads: 1, ...settings });
  try {
    runner.evaluate(Int32Array.from(TOKENS), chunk, (first, _count, logits) =>
      ours.set(logits, first * VOCAB),
    );
    const golden = { tokens: Int32Array.from(TOKENS), logits: ours, vocab: VOCAB };
    assert.equal(evaluateLogits(runner, golden, chunk).max_abs, 0, "the same steps give the same bits");
  } finally {
    runner.dispose();
  }
  return ours;
}

for (const [name, recipe, scales] of [
  ["GQA keys", GQA, ["k_scale", "k_proj.k_scale", "k_cache.scale", "kv_scale"]],
  ["GQA values", GQA, ["v_scale", "v_proj.v_scale"]],
  ["MLA latents", MLA, ["k_scale", "kv_scale"]],
] as const) {
  test(`another stored FP8 scale of ${name} changes the logits, and only where the pool is read`, () => {
    const plain = join(root, `${name} plain`);
    writeCheckpoint(plain, recipe);
    const base = run(plain, "fp8", 1);
    const whole = run(plain, "fp8", TOKENS.length);
    for (const scale of scales) {
      const dir = join(root, `${name} ${scale}`);
      writeCheckpoint(dir, { ...recipe, scalars: { [`model.layers.1.self_attn.${scale}`]: 1.37 } });
      assert.notDeepEqual(run(dir, "fp8", 1), base, scale);
      assert.deepEqual(run(dir, "fp8", TOKENS.length), whole, scale);
    }
  });
}
