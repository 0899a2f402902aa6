// `edgewise bench gpu` on the CPU backend, which answers as a GPU would: what it prints is right, and a wrong kernel shows.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { benchEngine, describeEngine } from "../../../gpu-node/bench/gpu/engine.ts";
import { floorUs, measureShape } from "../../../gpu-node/bench/gpu/measure.ts";
import { BenchMemory, RandomBlocks } from "../../../gpu-node/bench/gpu/shape.ts";
import { targetShapes, tinyShapes } from "../../../gpu-node/bench/gpu/shapes.ts";
import { run as runCli } from "../../../gpu-node/cli.ts";
import type { Tensor } from "../../../gpu-node/native/addon.ts";
import { openDevice } from "../../../gpu-node/native/device.ts";

const RANDOM = new RandomBlocks();
const METHOD = { replays: 3, calls: 2, coldBytes: 1 };

for (const shape of tinyShapes()) {
  test(`measured and held to the reference: ${shape.name}`, () => {
    const device = openDevice({ backend: "cpu", threads: 1 });
    const reference = openDevice({ backend: "reference", threads: 1 });
    const row = measureShape(device, reference, shape, METHOD, RANDOM);
    assert.ok(row.us > 0 && row.bytes > 0 && row.floorUs > 0);
    assert.ok(Math.abs(row.fraction - row.floorUs / row.us) < 1e-12);
    assert.ok(row.accuracy.error <= row.accuracy.bound, `error ${row.accuracy.error}`);
    device.dispose();
    reference.dispose();
  });

  test(`a kernel that writes zeros is found out: ${shape.name}`, () => {
    const device = openDevice({ backend: "cpu", threads: 1 });
    const reference = openDevice({ backend: "reference", threads: 1 });
    const ops = device.ops as unknown as Record<string, (args: Record<string, Tensor>) => void>;
    for (const [name, op] of Object.entries(ops)) {
      ops[name] = (args) => {
        op(args);
        const written = args.out ?? (name === "kv_unpack" ? args.rows : args.weights);
        if (!written || (name === "kv_unpack" && shape.group !== "small")) return;
        const zeros = device.alloc(written.dtype, written.shape);
        device.upload(written, new Uint8Array(device.read(zeros)));
      };
    }
    const prepared = shape.prepare(new BenchMemory(device, RANDOM), METHOD.coldBytes);
    const { error, bound } = prepared.check(reference);
    assert.ok(!(error <= bound), `error ${error}`);
    device.dispose();
    reference.dispose();
  });
}

test("names of shapes are unique: peers and results are found by them", () => {
  const names = targetShapes().map(({ name }) => name);
  assert.equal(new Set(names).size, names.length);
});

test("floors: bytes over bandwidth or operations over rate, whichever is longer", () => {
  assert.equal(floorUs(4.69e6, 0), 1);
  assert.equal(floorUs(4.69e6, 2 * 788e6), 2);
  const floor = (name: string) => {
    const shape = targetShapes().find((each) => each.name === name);
    assert.ok(shape, name);
    return Number(floorUs(shape.bytes, shape.flops).toFixed(1));
  };
  assert.equal(floor("mla 8 heads fp8 64 x 8192"), 64.6);
  assert.equal(floor("mla 64 heads fp8 64 x 8192"), 92.7);
  assert.equal(floor("gqa 12q/1kv hd128 bf16 64 x 8192"), 57.3);
  assert.equal(floor("linear int4 g128 8192 x 8192, 1 tokens"), 7.4);
  assert.equal(floor("linear int4 g128 8192 x 8192, 64 tokens"), 10.9);
  assert.equal(floor("moe kimi int4, 1 tokens"), 5.3);
});

test("--list names every shape once, with what a peer needs; a wrong group is a mistake of one line", async (t) => {
  const log = t.mock.method(console, "log", () => {});
  const error = t.mock.method(console, "error", () => {});
  assert.equal(await runCli(["bench", "gpu", "--list", "--only", "bf16"]), 0);
  const listed = JSON.parse(String(log.mock.calls[0].arguments[0])) as { name: string; kind: string }[];
  assert.ok(listed.length > 10 && listed.every(({ kind }) => kind === "linear"));
  assert.equal(await runCli(["bench", "gpu", "--only", "mal"]), 2);
  assert.match(String(error.mock.calls[0].arguments[0]), /--only mal: must be of/);
});

test("the engine's figures come from its own steps: event loop delay, time per step, idle share", async () => {
  const dir = fileURLToPath(new URL("../../fixtures/golden/llama", import.meta.url));
  const runner = { kind: "model", dir, backend: "cpu", threads: 1, slots: 4, maxLen: 128, depth: 2 } as const;
  const report = await benchEngine({ runner, streams: 4, steps: 20 });
  assert.ok(report.stepMs > 0 && report.gapMs >= 0);
  assert.ok(report.idleShare >= 0 && report.idleShare < 1);
  assert.ok(report.loopDelayMs.max >= report.loopDelayMs.p99);
  assert.match(describeEngine(report), /at 4 streams: .* ms.*\n.* 4 rows at depth 2: /);
});
