// `edgewise bench gpu`: kernels at the shapes this project exists for, beside what the memory and the arithmetic units
// of an H200 allow, the times to reach and the best public kernels.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { KV_FORMATS } from "../../kv/format.ts";
import { openDevice } from "../../native/device.ts";
import { loadAddon } from "../../native/load.ts";
import { defaultsOf, helpText, type Options, parseFlags, UsageError } from "../../options.ts";
import { benchEngine, describeEngine } from "./engine.ts";
import { METHOD, type Measured, type Method, measureShape, QUICK } from "./measure.ts";
import { type KernelShape, RandomBlocks } from "./shape.ts";
import { targetShapes, tinyShapes } from "./shapes.ts";
import { describeRow, HEADING } from "./table.ts";

const GROUPS = ["mla", "gqa", "int4", "moe", "fp8", "bf16", "sample", "small"];

const OPTIONS = {
  only: { type: "string", value: "GROUPS", help: `of ${GROUPS.join(",")}; default all` },
  match: { type: "string", value: "TEXT", help: "only shapes whose name holds this text" },
  quick: { type: "boolean", default: false, help: "5 replays of short graphs instead of 21" },
  tiny: { type: "boolean", default: false, help: "small shapes that check the tool, not the machine" },
  engine: { type: "boolean", default: false, help: "event loop delay and idle GPU time, not kernels" },
  model: { type: "string", value: "DIR", help: "checkpoint for --engine; default the bundled model" },
  kv: { type: "string", choices: KV_FORMATS, default: "fp8", help: "format of the KV cache for --engine" },
  peers: { type: "string", value: "FILE", help: "times of test/bench/peers.py, shown as a column" },
  list: { type: "boolean", default: false, help: "print the shapes as JSON, for test/bench/peers.py" },
  json: { type: "string", value: "FILE", help: "write the results here too" },
} as const;

export type GpuBenchOptions = Options<typeof OPTIONS>;

export interface GpuReport {
  date: string;
  device: string;
  driver: string;
  command: string;
  method: Method;
  rows: Measured[];
}

const NO_GPU = 3;

/** @returns exit code: 0; 1 when an output is wrong; 3 without a GPU */
export async function main(argv: string[]): Promise<number> {
  if (argv.includes("--help")) {
    console.log(`edgewise bench gpu [flags]: kernels on an H100 or H200\n\n${helpText(OPTIONS)}`);
    return 0;
  }
  const options = { ...defaultsOf(OPTIONS), ...parseFlags(OPTIONS, argv) } as GpuBenchOptions;
  const shapes = pick(options.tiny ? tinyShapes() : targetShapes(), options);
  if (options.list) {
    console.log(JSON.stringify(shapes.map(({ name, group, peer }) => ({ name, group, ...peer }))));
    return 0;
  }
  const peers = options.peers ? readPeers(options.peers) : {};
  const cuda = loadAddon()
    .backends()
    .find(({ name }) => name === "cuda");
  if (!cuda || cuda.unavailable !== null) {
    console.error(`edgewise: bench gpu: ${cuda?.unavailable ?? "no CUDA backend"}`);
    return NO_GPU;
  }
  return options.engine ? await engine(options) : kernels(shapes, options, peers);
}

function kernels(shapes: KernelShape[], options: GpuBenchOptions, peers: Record<string, number>): number {
  const method = options.tiny ? { replays: 2, calls: 2, coldBytes: 1 } : options.quick ? QUICK : METHOD;
  const reference = openDevice({ backend: "reference", threads: 1 });
  const report: GpuReport = { ...machine(), method, rows: [] };
  console.log(`${report.device}, driver ${report.driver}, ${report.date}`);
  console.log(HEADING);
  const random = new RandomBlocks();
  let wrong = 0;
  for (const shape of shapes) {
    // Memory goes with its device: no collection of garbage in between is relied on.
    const device = openDevice({ backend: "cuda" });
    try {
      const row = measureShape(device, reference, shape, method, random);
      row.peerUs = peers[shape.name] ?? row.peerUs;
      report.rows.push(row);
      console.log(describeRow(row));
      if (!(row.accuracy.error <= row.accuracy.bound)) wrong++;
    } catch (error) {
      console.log(`${shape.name.padEnd(48)} ${error instanceof Error ? error.message : error}`);
      wrong++;
    } finally {
      device.dispose();
    }
  }
  reference.dispose();
  if (options.json) writeFileSync(options.json, `${JSON.stringify(report, null, 1)}\n`);
  console.log(`${report.rows.length} shapes, ${wrong} wrong or failed`);
  return wrong > 0 ? 1 : 0;
}

async function engine(options: GpuBenchOptions): Promise<number> {
  const dir = resolve(options.model ?? fileURLToPath(new URL("../../models/nano", import.meta.url)));
  const [streams, steps, maxLen] = options.tiny ? [2, 8, 256] : [64, 512, 2048];
  const runner = {
    kind: "model",
    dir,
    backend: "cuda",
    kvFormat: options.kv,
    slots: streams,
    maxLen,
  } as const;
  const report = {
    ...machine(),
    model: dir,
    kv: options.kv,
    ...(await benchEngine({ runner, streams, steps })),
  };
  console.log(`${report.device}, driver ${report.driver}, ${report.date}\n${dir}, ${options.kv} KV`);
  console.log(describeEngine(report));
  if (options.json) writeFileSync(options.json, `${JSON.stringify(report, null, 1)}\n`);
  return 0;
}

function pick(shapes: KernelShape[], { only, match }: GpuBenchOptions): KernelShape[] {
  const groups = only?.split(",") ?? GROUPS;
  const unknown = groups.find((group) => !GROUPS.includes(group));
  if (unknown !== undefined) throw new UsageError(`--only ${unknown}: must be of ${GROUPS.join(",")}`);
  return shapes.filter(({ group, name }) => groups.includes(group) && name.includes(match ?? ""));
}

/** Microseconds by shape name. */
function readPeers(path: string): Record<string, number> {
  if (!existsSync(path)) throw new UsageError(`--peers ${path}: is not there`);
  return JSON.parse(readFileSync(path, "utf8")).us;
}

function machine() {
  const device = openDevice({ backend: "cuda" });
  const name = device.isa;
  device.dispose();
  const version = "/proc/driver/nvidia/version";
  const driver = existsSync(version)
    ? /\s(\d+\.\d+[.\d]*)\s/.exec(readFileSync(version, "utf8"))?.[1]
    : undefined;
  return {
    date: new Date().toISOString().slice(0, 10),
    device: name,
    driver: driver ?? "none",
    command: ["edgewise", ...process.argv.slice(2)].join(" "),
  };
}
