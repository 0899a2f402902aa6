// `edgewise bench`: how fast the engine runs a model here, next to what the machine could do at best. Asserts nothing.
import { cpus } from "node:os";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { ModelRunner } from "../engine/model-runner.ts";
import { openModelRunner } from "../engine/open-runner.ts";
import { KV_FORMATS } from "../kv/format.ts";
import { loadAddon } from "../native/load.ts";
import { defaultsOf, helpText, type Options, parseFlags } from "../options.ts";
import { CheckpointError } from "../weights/errors.ts";
import { decodeBytes, linearOperations, linearRate, streamBandwidth, weightSizes } from "./floors.ts";
import { type DecodeTimes, measureDecode, measureFirstToken } from "./measure.ts";

const OPTIONS = {
  model: { type: "string", value: "DIR", help: "checkpoint folder; default the bundled model" },
  backend: { type: "string", choices: ["reference", "cpu", "cuda"], default: "cpu", help: "what computes" },
  activations: { type: "string", choices: ["f32", "bf16"], default: "bf16", help: "dtype of activations" },
  kv: { type: "string", choices: KV_FORMATS, default: "bf16", help: "format of the KV cache" },
  threads: { type: "integer", min: 1, help: "threads of the CPU backend; default all cores" },
  runs: { type: "integer", min: 1, default: 5, help: "repetitions of a prefill" },
  steps: { type: "integer", min: 8, default: 128, help: "decode steps per batch size" },
  json: { type: "boolean", default: false, help: "print one JSON object" },
} as const;

type BenchOptions = Options<typeof OPTIONS>;

const BATCHES = [1, 16, 64];
const PREFILL = 2048;
const SHORT_PROMPT = 128;

interface Floor {
  seconds: number;
  /** Floor / measured. */
  fraction: number;
  how: string;
}

export interface BenchReport {
  device: string;
  date: string;
  model: string;
  precision: string;
  decode: (DecodeTimes & { floor: Floor })[];
  prefill: { tokens: number; tokensPerSecond: number; floor: Floor };
  firstToken: { prompt: number; ms: number };
}

/** @returns exit code: 0; 1 when the model can't be loaded */
export async function main(argv: string[]): Promise<number> {
  if (argv[0] === "gpu") return await (await import("./gpu/gpu.ts")).main(argv.slice(1));
  if (argv.includes("--help")) {
    console.log(`edgewise bench [--model DIR] [flags]\nedgewise bench gpu [flags]\n\n${helpText(OPTIONS)}`);
    return 0;
  }
  const options = { ...defaultsOf(OPTIONS), ...parseFlags(OPTIONS, argv) } as BenchOptions;
  try {
    const report = bench(options);
    console.log(options.json ? JSON.stringify(report) : describe(report));
    return 0;
  } catch (error) {
    if (!(error instanceof CheckpointError)) throw error;
    console.error(`edgewise: ${error.message}`);
    return 1;
  }
}

function bench(options: BenchOptions): BenchReport {
  const dir = options.model
    ? resolve(options.model)
    : fileURLToPath(new URL("../models/nano", import.meta.url));
  const { backend, activations, kv: kvFormat, threads } = options;
  const runner = openModelRunner({ kind: "model", dir, backend, activations, kvFormat, threads, slots: 64 });
  try {
    return measure(runner, dir, options);
  } finally {
    runner.dispose();
  }
}

function measure(runner: ModelRunner, dir: string, options: BenchOptions): BenchReport {
  const { device, model } = runner;
  const sizes = weightSizes(model, dir, loadAddon().mapFile);
  const decode = BATCHES.map((batch) => {
    const times = measureDecode(runner, batch, options.steps);
    const bytes = decodeBytes(model, sizes, batch, times.context);
    const bandwidth = streamBandwidth(device, bytes, 10);
    const how = `${mega(bytes)} MB at ${giga(bandwidth)} GB/s (add over as many bytes)`;
    return { ...times, floor: floor(bytes / bandwidth, times.stepMs / 1000, how) };
  });
  const length = Math.min(PREFILL, runner.limits.maxLen - 1);
  const seconds = measureFirstToken(runner, length, options.runs) / 1000;
  const operations = linearOperations(sizes) * length;
  const rate = linearRate(device, options.activations, 10);
  const how = `${giga(operations)} GFLOP of linear layers at ${giga(rate)} GFLOP/s (dense product)`;
  const short = Math.min(SHORT_PROMPT, runner.limits.maxLen - 1);
  return {
    device: `${cpus()[0]?.model.trim()}, ${device.backend} ${device.isa}, ${device.threads} threads`,
    date: new Date().toISOString().slice(0, 10),
    model: dir,
    precision: `${options.activations} activations, ${options.kv} KV cache`,
    decode,
    prefill: {
      tokens: length,
      tokensPerSecond: length / seconds,
      floor: floor(operations / rate, seconds, how),
    },
    firstToken: { prompt: short, ms: measureFirstToken(runner, short, options.runs) },
  };
}

function floor(seconds: number, measured: number, how: string): Floor {
  return { seconds, fraction: seconds / measured, how };
}

function describe(report: BenchReport): string {
  const lines = [
    `${report.model}, ${report.precision}`,
    `${report.device}, ${report.date}`,
    "",
    ...report.decode.flatMap((d) => [
      `decode, batch ${String(d.batch).padStart(2)}   ${rounded(d.tokensPerSecond)} tokens/s, ${d.stepMs.toFixed(3)} ms per step`,
      `    ${floorText(d.floor)}`,
      `    scheduling and plan ${(1000 * d.scheduleMs).toFixed(0)} us per step; ${percent(d.outsideShare)} of the time outside native ops`,
    ]),
    `prefill, ${report.prefill.tokens} tokens   ${rounded(report.prefill.tokensPerSecond)} tokens/s`,
    `    ${floorText(report.prefill.floor)}`,
    `first token of a prompt of ${report.firstToken.prompt}   ${report.firstToken.ms.toFixed(1)} ms`,
  ];
  return lines.join("\n");
}

function floorText({ seconds, fraction, how }: Floor): string {
  return `floor ${(1000 * seconds).toFixed(3)} ms: ${how}; ${percent(fraction)} of it reached`;
}

const rounded = (value: number) => value.toFixed(value < 100 ? 1 : 0);
const percent = (share: number) => `${(100 * share).toFixed(1)} %`;
const mega = (bytes: number) => (bytes / 1e6).toFixed(1);
const giga = (value: number) => (value / 1e9).toFixed(1);
