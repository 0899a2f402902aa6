// The addon in several threads of one process, and in a process that ends without warning.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { Worker } from "node:worker_threads";
import { openDevice } from "../../gpu-node/native/device.ts";

const module = new URL("../../gpu-node/native/device.ts", import.meta.url).href;

/** Worker code: keeps a device busy for ever, without waiting for it. */
const busy = `
  const { parentPort } = require("node:worker_threads");
  import(${JSON.stringify(module)}).then(({ openDevice }) => {
    const device = openDevice({ backend: "cpu", threads: 2 });
    const a = device.alloc("f32", [256, 1024]);
    const b = device.alloc("f32", [256, 1024]);
    const graph = device.capture(() => {
      for (let i = 0; i < 20; i++) device.ops.add({ a, b });
    });
    const spin = () => {
      for (let i = 0; i < 20; i++) graph.replay();
      device.alloc("f32", [1 << 16]);
      setImmediate(spin);
    };
    for (let i = 0; i < 100; i++) graph.replay();
    parentPort?.postMessage("running");
    spin();
  });
`;

const started = (worker: Worker) =>
  new Promise<void>((resolve, reject) => worker.once("message", () => resolve()).once("error", reject));

test("the main thread and workers use the addon side by side", async () => {
  const code = `
    const { parentPort } = require("node:worker_threads");
    import(${JSON.stringify(module)}).then(({ openDevice }) => {
      const device = openDevice({ backend: "cpu", threads: 2 });
      const a = device.alloc("f32", [64, 257]);
      const b = device.fromHost("f32", [64, 257], new Float32Array(64 * 257).fill(1));
      for (let i = 0; i < 500; i++) device.ops.add({ a, b });
      parentPort.postMessage(new Float32Array(device.read(a)).every((value) => value === 500));
      device.dispose();
    });
  `;
  const answers = await Promise.all(
    [0, 1, 2].map(
      () =>
        new Promise((resolve, reject) => {
          new Worker(code, { eval: true }).once("message", resolve).once("error", reject);
        }),
    ),
  );
  const device = openDevice({ backend: "cpu" });
  const a = device.alloc("f32", [1, 1]);
  assert.deepEqual([...new Float32Array(device.read(a))], [0]);
  device.dispose();
  assert.deepEqual(answers, [true, true, true]);
});

test("terminating a worker with ops in flight leaves the process sound", async () => {
  for (let round = 0; round < 4; round++) {
    const worker = new Worker(busy, { eval: true });
    await started(worker);
    await worker.terminate();
  }
  const device = openDevice({ backend: "cpu", threads: 2 });
  const a = device.fromHost("f32", [1, 1], Float32Array.of(2));
  device.ops.add({ a, b: a });
  assert.deepEqual([...new Float32Array(device.read(a))], [4]);
  device.dispose();
});

test("a process that exits with ops in flight exits with its own code", () => {
  const code = `${busy.replace("parentPort?.postMessage", "setTimeout(() => process.exit(7), 20); (() => {})")}`;
  const result = spawnSync(process.execPath, ["-e", code], { encoding: "utf8", timeout: 60_000 });
  assert.deepEqual([result.status, result.signal, result.stderr], [7, null, ""]);
});
