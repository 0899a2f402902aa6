// The device: memory, the stream, failures, disposal. test/native/capture.test.ts has the graphs.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";
import { loadAddon } from "../../gpu-node/native/load.ts";

function withDevice(body: (device: OpDevice) => void, threads = 2): void {
  const device = openDevice({ backend: "cpu", threads });
  try {
    body(device);
  } finally {
    device.dispose();
  }
}

const f32 = (device: OpDevice, ...list: number[]) =>
  device.fromHost("f32", [1, list.length], Float32Array.from(list));
const floats = (buffer: ArrayBuffer) => [...new Float32Array(buffer)];

/** A lookup that fails in the kernel: id 9 of a table of 2 rows. */
function enqueueFailure(device: OpDevice): void {
  const table = device.alloc("f32", [2, 4]);
  const ids = device.fromHost("i32", [1], Int32Array.of(9));
  device.ops.embedding({ ids, table, out: device.alloc("f32", [1, 4]) });
}

test("ops, uploads and reads happen in the order of the calls", () => {
  withDevice((device) => {
    const a = f32(device, 0, 0, 0);
    const b = f32(device, 0, 0, 0);
    const data = new Float32Array(3);
    for (let i = 1; i <= 100; i++) {
      data.fill(i);
      device.upload(b, data);
      device.ops.add({ a, b });
    }
    data.fill(-1);
    assert.deepEqual(floats(device.read(a)), [5050, 5050, 5050]);
  });
});

test("a failing kernel is reported once, by the next wait, and what was enqueued behind it is skipped", () => {
  withDevice((device) => {
    const a = f32(device, 1);
    const one = f32(device, 1);
    enqueueFailure(device);
    device.ops.add({ a, b: one });
    assert.throws(() => device.sync(), /^Error: embedding: ids: 9 at \[0\] is not within \[0, 2\)$/);
    device.sync();
    assert.deepEqual(floats(device.read(a)), [1]);
    device.ops.add({ a, b: one });
    assert.deepEqual(floats(device.read(a)), [2]);
  });
});

test("with two steps in flight, the step before the failure passes and the one after it fails too", () => {
  withDevice((device) => {
    const a = f32(device, 1);
    device.ops.add({ a, b: f32(device, 1) });
    const before = device.record();
    enqueueFailure(device);
    const failed = device.record();
    device.ops.add({ a, b: f32(device, 1) });
    const behind = device.record();
    device.wait(before);
    assert.throws(() => device.wait(failed), /embedding: ids/);
    assert.throws(() => device.wait(behind), /embedding: ids/);
    device.wait(device.record());
    assert.deepEqual(floats(device.read(a)), [2]);
  });
});

test("a failure in any worker's piece reaches the caller", () => {
  withDevice((device) => {
    const table = device.alloc("f32", [2, 1024]);
    const list = new Int32Array(4096);
    list[4001] = 5;
    const ids = device.fromHost("i32", [4096], list);
    const out = device.alloc("f32", [4096, 1024]);
    for (let i = 0; i < 5; i++) {
      device.ops.embedding({ ids, table, out });
      assert.throws(() => device.sync(), /^Error: embedding: ids: 5 at \[4001\]/);
    }
  }, 4);
});

test("tickets grow, and one that was never given out is refused", () => {
  withDevice((device) => {
    const first = device.record();
    assert.ok(device.record() > first);
    device.wait(0);
    assert.throws(() => device.wait(1e9), /wait: no such ticket/);
    for (const bad of [-1, 0.5, Number.NaN, 2 ** 53])
      assert.throws(() => device.wait(bad), /wait: ticket: must be an integer/);
  });
});

test("allocated memory is zero, whatever its size", () => {
  withDevice((device) => {
    for (const n of [0, 1, 15, 300_000])
      assert.ok(floats(device.read(device.alloc("f32", [n]))).every((v) => v === 0));
  });
});

test("views address the elements they say", () => {
  withDevice((device) => {
    const t = device.fromHost(
      "i32",
      [2, 6],
      Int32Array.from({ length: 12 }, (_, i) => i),
    );
    const read = (view: typeof t) => [...new Int32Array(device.read(view))];
    assert.deepEqual(read(t.slice(1, 2, 5)), [2, 3, 4, 8, 9, 10]);
    assert.deepEqual(read(t.slice(0, 1, 2)), [6, 7, 8, 9, 10, 11]);
    assert.deepEqual(t.reshape([3, 4]).shape, [3, 4]);
    assert.deepEqual(read(t.reshape([3, 4]).slice(1, 0, 1)), [0, 4, 8]);
    const heads = t.slice(1, 0, 4).splitLast([2, 2]);
    assert.deepEqual(heads.shape, [2, 2, 2]);
    assert.deepEqual(read(heads.slice(1, 1, 2)), [2, 3, 8, 9]);
    assert.deepEqual(read(heads.slice(2, 1, 2)), [1, 3, 7, 9]);
    assert.deepEqual(t.slice(1, 6, 6).shape, [2, 0]);
  });
});

test("views beyond the tensor are refused, saying what is wrong", () => {
  withDevice((device) => {
    const t = device.alloc("f32", [2, 6]);
    assert.throws(() => t.slice(1, 2, 7), /slice: \[2, 7\) is not within dimension 1 of f32\[2, 6\]/);
    assert.throws(() => t.slice(1, 3, 2), /slice: \[3, 2\)/);
    assert.throws(() => t.slice(2, 0, 1), /slice: no dimension 2/);
    assert.throws(() => t.slice(0, -1, 1), /slice: begin: must be an integer/);
    assert.throws(() => t.reshape([13]), /reshape: f32\[2, 6\] has another number of elements than \[13\]/);
    assert.throws(() => t.reshape([1, 1, 1, 2, 6]), /reshape: shape: must be at most 4 dimensions/);
    assert.throws(() => t.slice(1, 0, 3).reshape([6]), /reshape: not contiguous/);
    assert.throws(() => t.splitLast([4, 2]), /splitLast/);
    assert.throws(() => t.splitLast([1, 1, 1, 6]), /more than 4 dimensions/);
    assert.throws(() => t.reshape([2 ** 52, 2 ** 52]), /too many elements/);
    assert.throws(() => device.alloc("f32", [2 ** 40, 2 ** 40]), /too many elements/);
    assert.throws(() => device.alloc("f32", [2 ** 50]), /out of memory|too many elements/);
    assert.throws(() => device.alloc("f64" as "f32", [1]), /alloc: dtype: must be one of/);
    assert.throws(() => device.fromHost("f32", [2], new Uint8Array(7)), /fromHost: data: has 7 bytes/);
    assert.throws(
      () => device.upload(t, new Uint8Array(49)),
      /upload: data: 49 bytes do not fit f32\[2, 6\]/,
    );
    assert.throws(
      () => device.upload(t.slice(1, 0, 1), new Uint8Array(4)),
      /upload: target: must be contiguous/,
    );
  });
});

test("an op may not write over what it reads, but columns of one buffer are apart", () => {
  withDevice((device) => {
    const t = device.alloc("f32", [4, 8]);
    const left = t.slice(1, 0, 4);
    device.ops.add({ a: left, b: t.slice(1, 4, 8) });
    device.ops.add({ a: left, b: left });
    assert.throws(() => device.ops.add({ a: left, b: t.slice(1, 1, 5) }), /add: a: overlaps b/);
    assert.throws(() => device.ops.add({ a: t.slice(0, 0, 2), b: t.slice(0, 1, 3) }), /add: a: overlaps b/);
    const out = left;
    const x = t.slice(1, 0, 4);
    assert.throws(
      () => device.ops.gather_rows({ x, index: device.alloc("i32", [4]), out }),
      /gather_rows: out: overlaps x/,
    );
    device.sync();
  });
});

test("an arena hands out aligned memory, says when it is full, and starts over", () => {
  withDevice((device) => {
    assert.throws(() => device.temp("f32", [1]), /temp: no arena in use/);
    const arena = device.arena(1000);
    device.useArena(arena);
    device.temp("u8", [1]);
    device.temp("f32", [100]);
    assert.deepEqual([arena.bytes, arena.used, arena.peak], [1000, 656, 656]);
    assert.throws(
      () => device.temp("f32", [200]),
      /temp: the arena of 1000 bytes is full: 656 bytes used, 800 bytes wanted for f32\[200\]/,
    );
    arena.reset();
    device.temp("f32", [10]);
    assert.deepEqual([arena.used, arena.peak], [40, 656]);
  });
});

test("tensors of one device are not taken by another", () => {
  withDevice((first) => {
    withDevice((second) => {
      const a = f32(first, 1);
      assert.throws(() => second.ops.add({ a, b: a }), /add: a: belongs to another device/);
      assert.throws(() => second.read(a), /read: source: belongs to another device/);
      assert.throws(() => second.useArena(first.arena(64)), /useArena: arena: belongs to another device/);
    });
  });
});

test("a disposed device refuses every call, and its tensors stay harmless", () => {
  const device = openDevice({ backend: "cpu" });
  const a = f32(device, 1, 2);
  const arena = device.arena(64);
  device.useArena(arena);
  const graph = device.capture(() => device.ops.add({ a, b: a }));
  graph.replay();
  device.dispose();
  device.dispose();
  const calls: (() => unknown)[] = [
    () => device.alloc("f32", [1]),
    () => device.fromHost("f32", [1], new Float32Array(1)),
    () => device.arena(64),
    () => device.useArena(arena),
    () => device.temp("f32", [1]),
    () => device.ops.add({ a, b: a }),
    () => device.upload(a, new Float32Array(2)),
    () => device.read(a),
    () => device.capture(() => {}),
    () => device.record(),
    () => device.wait(0),
    () => device.sync(),
    () => graph.replay(),
  ];
  for (const call of calls) assert.throws(call, /: the device is disposed$/);
  assert.deepEqual(a.reshape([2, 1]).shape, [2, 1]);
  assert.equal(device.backend, "cpu");
  graph.dispose();
});

test("objects of the addon can't be forged", () => {
  withDevice((device) => {
    const a = f32(device, 1);
    const Tensor = a.constructor as new () => typeof a;
    assert.throws(() => new Tensor(), /Tensor: is made by a device/);
    assert.throws(() => device.ops.add({ a, b: Object.create(a) }), /add: b: must be a Tensor/);
    assert.throws(() => device.ops.add({ a, b: device as unknown as typeof a }), /add: b: must be a Tensor/);
    assert.throws(() => device.run(1e6, []), /run: op: must be an integer/);
    assert.throws(() => device.run(0, []), /takes \d+ arguments, got 0/);
    assert.throws(() => a.reshape.call({} as typeof a, [1]));
  });
});

test("openDevice refuses what it does not know, naming the option", () => {
  const addon = loadAddon();
  const open = (options: unknown) => () => addon.openDevice(options as { backend: "cpu" });
  assert.throws(open({ backend: "tpu" }), /openDevice: backend: must be one of reference, cpu, cuda/);
  assert.throws(open({}), /openDevice: backend: must be a string/);
  assert.throws(open(null), /openDevice: options: must be an object/);
  assert.throws(
    open({ backend: "cpu", threads: 0 }),
    /openDevice: threads: must be an integer from 1 to 1024/,
  );
  assert.throws(
    open({ backend: "cpu", isa: "sse9" }),
    /openDevice: isa: must be one of portable, avx2, avx512/,
  );
  const cuda = addon.backends().find(({ name }) => name === "cuda");
  if (cuda?.unavailable) assert.throws(open({ backend: "cuda" }), /openDevice: cuda: /);
});

test("a mapped file is read, typed without a copy, and never written", () => {
  const dir = mkdtempSync(join(tmpdir(), "edgewise-map-"));
  try {
    const path = join(dir, "weights");
    writeFileSync(path, Buffer.concat([Buffer.from([7]), Buffer.from(Float32Array.of(1, 2, 3, 4).buffer)]));
    writeFileSync(join(dir, "empty"), "");
    const addon = loadAddon();
    const file = addon.mapFile(path);
    withDevice((device) => {
      assert.equal(file.bytes, 17);
      assert.deepEqual([...file.read(0, 1)], [7]);
      assert.throws(() => file.read(1, 18), /read: end: must be an integer from 1 to 17/);
      assert.throws(() => file.read(18, 18), /read: begin/);
      // An address that is not a multiple of four: copied.
      const unaligned = device.fromFile(file, 1, "f32", [1, 4]);
      assert.deepEqual(floats(device.read(unaligned)), [1, 2, 3, 4]);
      const mapped = device.fromFile(file, 0, "u8", [17]);
      assert.throws(() => device.fromFile(file, 8, "f32", [1, 4]), /reaches beyond the 17 bytes/);
      assert.throws(() => device.fromFile(file, 2 ** 53 - 1, "u8", [1]), /reaches beyond/);
      assert.throws(
        () => device.upload(mapped, new Uint8Array(1)),
        /upload: target: lies in a read-only file/,
      );
      const aligned = device.fromFile(file, 4, "f32", [1, 3]);
      assert.throws(
        () => device.ops.add({ a: aligned, b: aligned }),
        /add: a: is written by this op, and lies in a read-only file mapping/,
      );
      file.close();
      file.close();
      assert.throws(() => file.bytes, /bytes: the file is closed/);
      assert.throws(() => device.fromFile(file, 0, "u8", [1]), /fromFile: the file is closed/);
      assert.equal(new Uint8Array(device.read(mapped))[0], 7);
      const empty = addon.mapFile(join(dir, "empty"));
      assert.equal(empty.bytes, 0);
      assert.equal(empty.read(0, 0).length, 0);
      assert.deepEqual(device.fromFile(empty, 0, "f32", [0, 4]).shape, [0, 4]);
    });
    assert.throws(() => addon.mapFile(join(dir, "missing")), /mapFile: .*missing: No such file/);
    assert.throws(() => addon.mapFile(dir), /mapFile: .*: not a regular file/);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test("a download holds what the stream had at its point, and is handed out once", () => {
  withDevice((device) => {
    const a = device.fromHost("f32", [2, 3], Float32Array.of(1, 2, 3, 4, 5, 6));
    const first = device.download(a.slice(1, 1, 3));
    device.upload(a, Float32Array.of(9, 9, 9, 9, 9, 9));
    const second = device.download(a);
    assert.deepEqual([...new Float32Array(device.receive(second))], [9, 9, 9, 9, 9, 9]);
    assert.deepEqual([...new Float32Array(device.receive(first))], [2, 3, 5, 6]);
    assert.throws(() => device.receive(first), /receive: no download has the ticket/);
  });
});

test("timestamps follow the order of the stream", () => {
  withDevice((device) => {
    const a = device.alloc("f32", [64, 64]);
    const from = device.timestamp();
    for (let i = 0; i < 50; i++) device.ops.add({ a, b: a });
    const to = device.timestamp();
    assert.ok(device.elapsed(from, to) > 0);
    assert.ok(device.elapsed(to, from) < 0);
    assert.throws(() => device.elapsed(from, 10_000), /elapsed: no such timestamp/);
  });
});
