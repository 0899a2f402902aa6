// `edgewise plan`: what a checkpoint takes and how many tokens a KV cache of a given size holds. Reads headers only.
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { type Capacity, capacity, longestSequences } from "../kv/capacity.ts";
import type { KvFormat } from "../kv/format.ts";
import { readModelSpec } from "../model/config.ts";
import { kvGeometry } from "../model/kv.ts";
import type { ModelSpec } from "../model/spec.ts";
import { loadAddon } from "../native/load.ts";
import { defaultsOf, helpText, type Options, parseFlags, UsageError } from "../options.ts";
import { openCheckpoint } from "../weights/checkpoint.ts";
import { CheckpointError } from "../weights/errors.ts";

const OPTIONS = {
  model: { type: "string", value: "DIR", help: "checkpoint folder; default the bundled model" },
  kv_gib: { type: "number", min: 0.001, default: 1, help: "memory of the KV cache in GiB" },
  json: { type: "boolean", default: false, help: "print one JSON object" },
} as const;

export interface PlanReport {
  model: string;
  family: string;
  layers: number;
  maxPositions: number;
  /** Of the checkpoint as it is stored, without what is ignored. */
  weightBytes: number;
  kvGib: number;
  kv: (Capacity & { longestSequences: number })[];
}

const FORMATS: KvFormat[] = ["bf16", "fp8", "fp8-token"];

/** @returns exit code: 0; 1 when the folder holds no model that is known */
export async function main(argv: string[]): Promise<number> {
  if (argv.includes("--help")) {
    console.log(
      `edgewise plan [DIR] [flags]: tokens that a KV cache holds, by format\n\n${helpText(OPTIONS)}\n\n` +
        "A GB is 1e9 bytes. Tokens come in pages of 64; the null page comes on top.",
    );
    return 0;
  }
  const [dir, flags] = argv[0] && !argv[0].startsWith("-") ? [argv[0], argv.slice(1)] : [undefined, argv];
  const options = { ...defaultsOf(OPTIONS), ...parseFlags(OPTIONS, flags) } as Options<typeof OPTIONS>;
  if (dir && options.model) throw new UsageError("plan: give the folder once, as DIR or as --model DIR");
  const bundled = fileURLToPath(new URL("../models/nano", import.meta.url));
  try {
    const report = planModel(resolve(dir ?? options.model ?? bundled), options.kv_gib);
    console.log(options.json ? JSON.stringify(report) : describe(report));
    return 0;
  } catch (error) {
    if (!(error instanceof CheckpointError)) throw error;
    console.error(`edgewise: ${error.message}`);
    return 1;
  }
}

/** Throws CheckpointError for a folder without a model, or with one that is not supported. */
export function planModel(dir: string, kvGib: number): PlanReport {
  const spec = readModelSpec(dir);
  const geometry = kvGeometry(spec.attention);
  const layers = spec.layers.length;
  return {
    model: dir,
    family: spec.family,
    layers,
    maxPositions: spec.maxPositions,
    weightBytes: weightBytes(dir, spec),
    kvGib,
    kv: FORMATS.map((format) => {
      const fits = capacity(format, geometry, layers, kvGib * 2 ** 30);
      return { ...fits, longestSequences: longestSequences(fits, spec) };
    }),
  };
}

function weightBytes(dir: string, spec: ModelSpec): number {
  const checkpoint = openCheckpoint(dir, loadAddon().mapFile);
  try {
    return [...checkpoint.tensors]
      .filter(([name]) => !spec.ignoredTensors(name))
      .reduce((sum, [, { begin, end }]) => sum + end - begin, 0);
  } finally {
    checkpoint.close();
  }
}

function describe({
  model,
  family,
  layers,
  maxPositions,
  weightBytes: weights,
  kvGib,
  kv,
}: PlanReport): string {
  const heads = [
    "KV cache",
    "bytes/token",
    "tokens/GB",
    `tokens in ${kvGib} GiB`,
    "x bf16",
    "longest sequences",
  ];
  const rows = kv.map((k) => [
    k.format,
    String(k.bytesPerToken),
    String(k.tokensPerGb),
    String(k.poolTokens),
    k.timesBf16.toFixed(2),
    k.longestSequences.toFixed(1),
  ]);
  const widths = heads.map((head, i) => Math.max(head.length, ...rows.map((row) => row[i].length)));
  const line = (cells: string[]) =>
    cells.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]) : cell.padStart(widths[i]))).join("  ");
  return [
    model,
    `${family}, ${layers} layers, ${maxPositions} positions, ${(weights / 1e9).toFixed(3)} GB of weights`,
    "",
    ...[heads, ...rows].map(line),
  ].join("\n");
}
