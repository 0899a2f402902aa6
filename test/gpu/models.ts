// Whole models on CUDA: the golden checkpoints, and the bundled models through the engine with its thread and graphs.
import { existsSync, readdirSync } from "node:fs";
import { basename, join } from "node:path";
import { type ModelRunnerOptions, openModelRunner } from "../../gpu-node/engine/open-runner.ts";
import { type Golden, readGolden } from "../../gpu-node/eval/golden.ts";
import { evaluateLogits } from "../../gpu-node/eval/logits.ts";
import { compareLogits } from "../../gpu-node/eval/metrics.ts";
import type { KvFormat } from "../../gpu-node/kv/format.ts";
import type { BackendName } from "../../gpu-node/native/addon.ts";
import { CheckpointError } from "../../gpu-node/weights/errors.ts";
import { backendBounds, goldenBounds, violations, worstShare } from "../golden-bounds.ts";
import { askBundled, checkDeterministic } from "./bundled.ts";
import { checkFirstTokens } from "./first-tokens.ts";
import type { Outcome, Table } from "./table.ts";

const FIXTURES = new URL("../fixtures/golden", import.meta.url).pathname;

export interface ModelsOptions {
  quick: boolean;
  /** Folder of checkpoints, each with golden.safetensors beside it. */
  goldens: string | null;
}

export async function checkModels(table: Table, { quick, goldens }: ModelsOptions): Promise<void> {
  const dirs = [FIXTURES, ...(goldens ? [goldens] : [])].flatMap((root) =>
    readdirSync(root)
      .sort()
      .map((name) => join(root, name))
      .filter((dir) => existsSync(join(dir, "golden.safetensors"))),
  );
  for (const dir of dirs) {
    const golden = readGolden(join(dir, "golden.safetensors"));
    const name = basename(dir);
    await table.check(`golden ${name}, bf16 KV`, () => againstGolden(dir, golden));
    for (const kv of quick ? (["fp8"] as const) : (["fp8", "fp8-token"] as const)) {
      await table.check(`golden ${name}, ${kv} KV, cuda to cpu`, () => againstCpu(dir, golden, kv));
    }
  }
  await table.check("nano, first tokens, cuda to cpu", checkFirstTokens);
}

export async function checkBundled(table: Table, { quick }: { quick: boolean }): Promise<void> {
  for (const model of ["nano", "nano-int4"]) {
    for (const kv of ["bf16", "fp8"] as const) {
      await table.check(`${model}, ${kv} KV, held-out questions`, () => askBundled(model, kv, quick));
    }
  }
  await table.check("nano --deterministic, alone and in batches", () => checkDeterministic(quick));
}

function options(dir: string, backend: BackendName, tokens: number, chunk: number, kvFormat: KvFormat) {
  const common = { kind: "model", dir, backend, kvFormat, slots: 1, maxLen: tokens, depth: 1 } as const;
  return { ...common, activations: "bf16", maxTokens: chunk } satisfies ModelRunnerOptions;
}

function againstGolden(dir: string, golden: Golden): Outcome {
  const length = golden.tokens.length;
  const dense = /^(llama|qwen3)(-[a-z])?$/.test(basename(dir));
  const failures: string[] = [];
  let worst = 0;
  let note = "";
  for (const chunk of [length, 1]) {
    const runner = open(options(dir, "cuda", length, chunk, "bf16"));
    if (typeof runner === "string") return { cases: 0, note: runner };
    try {
      const report = evaluateLogits(runner, golden, chunk);
      const bounds = goldenBounds(report, "bf16", dense);
      note = `median KL to golden ${report.median_kl.toExponential(1)}`;
      worst = Math.max(worst, worstShare(bounds));
      failures.push(...violations(bounds).map((text) => `chunk ${chunk}: ${text}`));
    } finally {
      runner.dispose();
    }
  }
  return { cases: 2, worst, failures, note };
}

/** Token by token, so that everything but the newest token is read from the FP8 cache. */
function againstCpu(dir: string, golden: Golden, kv: KvFormat): Outcome {
  const length = golden.tokens.length;
  const logits: Float32Array[] = [];
  for (const backend of ["cpu", "cuda"] as const) {
    const runner = open(options(dir, backend, length, 1, kv));
    if (typeof runner === "string") return { cases: 0, note: runner };
    const ours = new Float32Array(golden.logits.length);
    try {
      runner.evaluate(golden.tokens, 1, (first, _count, row) => ours.set(row, first * golden.vocab));
    } finally {
      runner.dispose();
    }
    logits.push(ours);
  }
  const [cpu, cuda] = logits;
  const bounds = backendBounds(compareLogits(cpu, cuda, golden.vocab));
  const toGolden = compareLogits(golden.logits, cuda, golden.vocab).median_kl;
  return {
    cases: 1,
    worst: worstShare(bounds),
    failures: violations(bounds),
    note: `median KL to golden ${toGolden.toExponential(1)}`,
  };
}

/** A model that is not supported yet is refused by name: the reason. */
function open(settings: ModelRunnerOptions) {
  try {
    return openModelRunner(settings);
  } catch (error) {
    if (error instanceof CheckpointError && error.code === "unsupported") return error.message;
    throw error;
  }
}
