// Captured graphs.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { BackendName } from "../../gpu-node/native/addon.ts";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";
import { hasCuda } from "../ops/harness.ts";

/** On the CPU, and on a GPU or its emulation where this build has one. */
const BACKENDS: BackendName[] = hasCuda() ? ["cpu", "cuda"] : ["cpu"];

function withDevice(body: (device: OpDevice) => void): void {
  for (const backend of BACKENDS) {
    const device = openDevice({ backend, threads: 2 });
    try {
      body(device);
    } finally {
      device.dispose();
    }
  }
}

const row = (device: OpDevice, ...list: number[]) =>
  device.fromHost("f32", [1, list.length], Float32Array.from(list));
const floats = (buffer: ArrayBuffer) => [...new Float32Array(buffer)];

test("capturing runs nothing; each replay runs all of it on the values of that moment", () => {
  withDevice((device) => {
    const a = row(device, 0, 0);
    const b = row(device, 1, 2);
    const graph = device.capture(() => {
      device.ops.add({ a, b });
      device.ops.add({ a, b });
    });
    assert.deepEqual(floats(device.read(a)), [0, 0]);
    assert.deepEqual([graph.launches, device.launches], [2, 0]);
    graph.replay();
    device.upload(b, Float32Array.of(10, 20));
    graph.replay();
    assert.deepEqual(floats(device.read(a)), [22, 44]);
    assert.equal(device.launches, 4);
  });
});

test("intermediates of a capture come from the current arena and keep their place", () => {
  withDevice((device) => {
    const arena = device.arena(4096);
    const x = row(device, 3, 4);
    const weight = device.fromHost("f32", [2], Float32Array.of(1, 1));
    const out = device.alloc("f32", [1, 2]);
    const graph = device.capture(() => {
      device.useArena(arena);
      const normed = device.temp("f32", [1, 2]);
      device.ops.rms_norm({ x, weight, out: normed, eps: 0 });
      device.ops.cast({ x: normed, out });
    });
    graph.replay();
    const [p, q] = floats(device.read(out));
    assert.ok(Math.abs(p - 3 / Math.sqrt(12.5)) < 1e-6 && Math.abs(q - 4 / Math.sqrt(12.5)) < 1e-6);
  });
});

test("allocation, host reads and synchronisation are refused during capture, by name", () => {
  withDevice((device) => {
    const a = row(device, 1);
    const graph = device.capture(() => {});
    const refused: Record<string, () => unknown> = {
      alloc: () => device.alloc("f32", [1]),
      fromHost: () => device.fromHost("f32", [1], new Float32Array(1)),
      arena: () => device.arena(64),
      upload: () => device.upload(a, new Float32Array(1)),
      read: () => device.read(a),
      record: () => device.record(),
      wait: () => device.wait(0),
      sync: () => device.sync(),
      timestamp: () => device.timestamp(),
      download: () => device.download(a),
      receive: () => device.receive(0),
      replay: () => graph.replay(),
      capture: () => device.capture(() => {}),
      dispose: () => device.dispose(),
    };
    for (const [name, call] of Object.entries(refused)) {
      assert.throws(() => device.capture(call), { message: `${name}: not during capture` });
    }
    device.ops.add({ a, b: a });
    assert.deepEqual(floats(device.read(a)), [2], "a failed capture leaves the device usable");
  });
});

test("a failing node of a graph is named, and the graph can be replayed again", () => {
  withDevice((device) => {
    const ids = device.fromHost("i32", [1], Int32Array.of(9));
    const table = device.alloc("f32", [2, 4]);
    const out = device.alloc("f32", [1, 4]);
    const a = row(device, 1);
    const graph = device.capture(() => {
      device.ops.embedding({ ids, table, out });
      device.ops.add({ a, b: a });
    });
    graph.replay();
    const message =
      device.backend === "cuda" ? /^Error: embedding: index out of range: 9/ : /^Error: embedding: ids: 9/;
    assert.throws(() => device.sync(), message);
    device.upload(ids, Int32Array.of(1));
    graph.replay();
    // The CPU skips what follows a failure; a GPU runs it, and its results are thrown away.
    assert.deepEqual(floats(device.read(a)), [device.backend === "cuda" ? 4 : 2]);
  });
});

test("a graph may be disposed while its replay is in flight, and then refuses to replay", () => {
  withDevice((device) => {
    const a = device.alloc("f32", [512, 512]);
    const b = device.fromHost("f32", [512, 512], new Float32Array(512 * 512).fill(1));
    const graph = device.capture(() => {
      for (let i = 0; i < 50; i++) device.ops.add({ a, b });
    });
    graph.replay();
    graph.dispose();
    graph.dispose();
    assert.throws(() => graph.replay(), /replay: the graph is disposed/);
    assert.equal(new Float32Array(device.read(a))[0], 50);
  });
});
