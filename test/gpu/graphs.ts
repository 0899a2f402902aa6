// Captured graphs on CUDA; by itself, for compute-sanitizer:  node test/gpu/graphs.ts [CAPTURES]
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { openModelRunner } from "../../gpu-node/engine/open-runner.ts";
import type { Graph } from "../../gpu-node/native/addon.ts";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";
import { type Outcome, Table } from "./table.ts";

const LLAMA = new URL("../fixtures/golden/llama", import.meta.url).pathname;
const CAPTURES = 1000;
const OPS_PER_GRAPH = 8;
/** Of the graphs, so many stay alive, to be replayed later and collected at last. */
const KEPT = 16;

export async function checkGraphs(table: Table, { quick }: { quick: boolean }): Promise<void> {
  await table.check("capture refuses allocation, read and sync", () => withCuda(refusals));
  const captures = quick ? 20 : CAPTURES;
  await table.check(`${captures} captures and replays, forced GC`, () =>
    withCuda((device) => captureAndCollect(device, captures)),
  );
  await table.check("warm-up and capture leave the pool as it is", warmUpLeavesPool);
}

function withCuda(body: (device: OpDevice) => Outcome): Outcome {
  const device = openDevice({ backend: "cuda" });
  try {
    return body(device);
  } finally {
    device.dispose();
  }
}

function refusals(device: OpDevice): Outcome {
  const a = device.fromHost("f32", [1, 4], new Float32Array(4));
  const graph = device.capture(() => device.ops.add({ a, b: a }));
  const calls: Record<string, () => unknown> = {
    alloc: () => device.alloc("f32", [1]),
    fromHost: () => device.fromHost("f32", [1], new Float32Array(1)),
    upload: () => device.upload(a, new Float32Array(4)),
    read: () => device.read(a),
    download: () => device.download(a),
    sync: () => device.sync(),
    record: () => device.record(),
    timestamp: () => device.timestamp(),
    replay: () => graph.replay(),
  };
  const failures: string[] = [];
  for (const [name, call] of Object.entries(calls)) {
    try {
      device.capture(call);
      failures.push(`${name} was not refused`);
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error);
      if (message !== `${name}: not during capture`) failures.push(`${name}: ${message}`);
    }
  }
  graph.replay();
  device.sync();
  return { cases: Object.keys(calls).length, failures };
}

/** Every graph adds its own number OPS_PER_GRAPH times; garbage of all kinds is collected while replays are in flight. */
function captureAndCollect(device: OpDevice, captures: number): Outcome {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const arena = device.arena(1 << 16);
  const sum = device.alloc("f32", [4, 64]);
  const kept: Graph[] = [];
  let wanted = 0;
  const failures: string[] = [];
  for (let i = 0; i < captures; i++) {
    const number = (i % 7) + 1;
    const b = device.fromHost("f32", [4, 64], new Float32Array(256).fill(number));
    const graph = device.capture(() => {
      device.useArena(arena);
      arena.reset();
      const copy = device.temp("f32", [4, 64]);
      device.ops.cast({ x: b, out: copy });
      for (let op = 0; op < OPS_PER_GRAPH; op++) device.ops.add({ a: sum, b: copy });
    });
    graph.replay();
    wanted += number * OPS_PER_GRAPH;
    if (i % 3 === 0) graph.dispose();
    else if (kept.length < KEPT) kept.push(graph); // others are left to the collector, their tensors with them
    if (i % 10 === 9) collect();
    if (i % 50 === 49) {
      const got = new Float32Array(device.read(sum));
      if (!got.every((value) => value === wanted)) failures.push(`after ${i + 1}: ${got[0]}, not ${wanted}`);
      device.upload(sum, new Float32Array(256));
      wanted = 0;
    }
  }
  for (const graph of kept) graph.replay();
  device.sync();
  for (const graph of kept) graph.dispose();
  return { cases: captures, failures };
}

function warmUpLeavesPool(): Outcome {
  const runner = openModelRunner({ kind: "model", dir: LLAMA, backend: "cuda", slots: 8, kvBytes: 2 ** 20 });
  try {
    const failures = runner.model.kv.flatMap(({ pool }, layer) => {
      const pages = new Uint8Array(runner.device.read(pool.slice(0, 1, pool.shape[0])));
      return pages.every((byte) => byte === 0) ? [] : [`layer ${layer} was written to`];
    });
    return { cases: runner.model.kv.length, failures };
  } finally {
    runner.dispose();
  }
}

if (import.meta.main) {
  const table = new Table();
  const captures = Number(process.argv[2] ?? CAPTURES);
  await table.check(`${captures} captures and replays, forced GC`, () =>
    withCuda((device) => captureAndCollect(device, captures)),
  );
  process.exitCode = table.failed ? 1 : 0;
}
