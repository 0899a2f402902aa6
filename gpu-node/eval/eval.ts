// `edgewise eval logits|greedy`: holds a checkpoint's answers to golden ones, on the path that serves requests.
import { dirname, join } from "node:path";
import type { ModelRunner } from "../engine/model-runner.ts";
import { type ModelRunnerOptions, openModelRunner } from "../engine/open-runner.ts";
import { KV_FORMATS } from "../kv/format.ts";
import { AddonError, loadAddon } from "../native/load.ts";
import { defaultsOf, helpText, type Options, parseFlags, UsageError } from "../options.ts";
import { CheckpointError } from "../weights/errors.ts";
import { progressBar } from "../weights/progress.ts";
import { readGolden, readGoldenTokens, readGreedyGolden } from "./golden.ts";
import { evaluateGreedy } from "./greedy.ts";
import { evaluateLogits } from "./logits.ts";

const OPTIONS = {
  model: { type: "string", value: "DIR", help: "checkpoint folder" },
  golden: { type: "string", value: "FILE", help: "golden.safetensors (logits) or golden.json (greedy)" },
  backend: { type: "string", choices: ["reference", "cpu", "cuda"], default: "cpu", help: "what computes" },
  activations: { type: "string", choices: ["f32", "bf16"], default: "bf16", help: "dtype of activations" },
  kv: { type: "string", choices: KV_FORMATS, default: "bf16", help: "format of the KV cache" },
  chunk: { type: "integer", min: 1, help: "tokens per step; default 1 with an FP8 cache, else all" },
  threads: { type: "integer", min: 1, help: "threads of the CPU backend; default all cores" },
  deterministic: { type: "boolean", default: false, help: "only ops whose rows do not depend on the batch" },
  json: { type: "boolean", default: false, help: "print one JSON object" },
} as const;

type EvalOptions = Options<typeof OPTIONS> & { model: string };

const HELP = `edgewise eval logits --model DIR --golden FILE.safetensors [flags]   compare all logits
edgewise eval greedy --model DIR [--golden FILE.json] [flags]        compare the greedy continuation

${helpText(OPTIONS)}

pool_rows_read counts the rows that attention read from the KV cache, over all steps and layers.`;

/** @returns exit code: 0; 1 when the model can't be loaded or run, or a greedy continuation differs */
export async function main(argv: string[]): Promise<number> {
  const [what, ...flags] = argv;
  if (what === undefined) throw new UsageError("eval needs logits or greedy; see edgewise eval --help");
  if (what === "--help" || what === "-h" || flags.includes("--help")) {
    console.log(HELP);
    return 0;
  }
  if (what !== "logits" && what !== "greedy")
    throw new UsageError(`eval: "${what}" is neither logits nor greedy`);
  const options = { ...defaultsOf(OPTIONS), ...parseFlags(OPTIONS, flags) } as Options<typeof OPTIONS>;
  if (!options.model) throw new UsageError("eval needs --model DIR");
  try {
    return what === "logits" ? logits(options as EvalOptions) : greedy(options as EvalOptions);
  } catch (error) {
    const known = [CheckpointError, AddonError, RangeError].some((kind) => error instanceof kind);
    if (!known || !(error instanceof Error)) throw error;
    console.error(`edgewise: ${error.message}`);
    return 1;
  }
}

function logits(options: EvalOptions): number {
  if (!options.golden) throw new UsageError("eval logits needs --golden FILE.safetensors");
  const golden = readGolden(options.golden);
  const report = withRunner(options, golden.tokens, 0, (runner, chunk) => ({
    ...evaluateLogits(runner, golden, chunk),
    chunk,
    ...precision(options),
  }));
  print(report, options.json);
  return 0;
}

function greedy(options: EvalOptions): number {
  const path = options.golden ?? join(options.model, "golden.json");
  const golden = readGreedyGolden(path);
  const prompt = readGoldenTokens(join(dirname(path), "golden.safetensors"));
  const report = withRunner(options, prompt, golden.continuation.length, (runner, chunk) => ({
    ...evaluateGreedy(runner, prompt, golden, Math.min(chunk, prompt.length)),
    chunk: Math.min(chunk, prompt.length),
    ...precision(options),
  }));
  print(report, options.json);
  return report.match ? 0 : 1;
}

/** Opens the model for `tokens` and `more` behind them, and closes it whatever happens. */
function withRunner<T>(
  options: EvalOptions,
  tokens: Int32Array,
  more: number,
  body: (runner: ModelRunner, chunk: number) => T,
): T {
  const backend = loadAddon()
    .backends()
    .find(({ name }) => name === options.backend);
  if (backend?.unavailable) throw new UsageError(`--backend ${options.backend}: ${backend.unavailable}`);
  const length = tokens.length + more;
  const chunk = Math.min(options.chunk ?? (options.kv.startsWith("fp8") ? 1 : length), length);
  const settings: ModelRunnerOptions = {
    kind: "model",
    dir: options.model,
    backend: options.backend,
    threads: options.threads,
    activations: options.activations,
    kvFormat: options.kv,
    deterministic: options.deterministic,
    slots: 1,
    maxLen: length,
    maxTokens: chunk,
    depth: 1,
  };
  const bar = progressBar(process.stderr, "loading");
  const runner = openModelRunner(settings, bar);
  try {
    if (length > runner.limits.maxLen) {
      throw new UsageError(`${length} tokens are more than the model's ${runner.limits.maxLen} positions`);
    }
    const { vocab } = runner.limits;
    const foreign = tokens.find((token) => token < 0 || token >= vocab);
    if (foreign !== undefined)
      throw new RangeError(`input_ids: ${foreign} is none of the model's ${vocab} tokens`);
    return body(runner, chunk);
  } finally {
    runner.dispose();
  }
}

function precision({ backend, activations, kv }: EvalOptions) {
  return { backend, activations, kv };
}

function print(report: object, json: boolean): void {
  if (json) console.log(JSON.stringify(report));
  else for (const [key, value] of Object.entries(report)) console.log(`${key.padEnd(16)} ${format(value)}`);
}

function format(value: unknown): string {
  if (typeof value !== "number" || Number.isInteger(value)) return String(value);
  return Math.abs(value) < 1e-3 ? value.toExponential(2) : value.toPrecision(4);
}
