// Properties of the paged cache that a single call does not show.
import assert from "node:assert/strict";
import { test } from "node:test";
import { KV_FORMATS, kvFormatCode } from "../../gpu-node/kv/format.ts";
import { openDevice } from "../../gpu-node/native/device.ts";
import { hasCuda } from "./harness.ts";
import { allocPool, type PoolShape, packRows, rowBytes, unpackRows } from "./kv.ts";
import { Random } from "./random.ts";

const SHAPES = [
  { heads: 0, dim: 576 },
  { heads: 1, dim: 8 },
  { heads: 3, dim: 40 },
];

const BACKENDS = ["reference", "cpu", ...(hasCuda() ? (["cuda"] as const) : [])] as const;

for (const format of KV_FORMATS) {
  for (const { heads, dim } of SHAPES) {
    const shape: PoolShape = { format, heads, dim, pages: 4 };
    const name = `${format}, ${heads} heads, dim ${dim}`;
    for (const backend of BACKENDS.slice(1)) {
      test(`rows packed and unpacked are the same bytes: ${name}, ${backend}`, () => {
        const device = openDevice({ backend });
        try {
          const random = new Random(7);
          const slots = Array.from({ length: 256 }, (_, i) => (i * 37) % 256);
          const bytes = Uint8Array.from({ length: 256 * rowBytes(shape) }, () => 256 * random.next());
          const pool = allocPool(device, shape);
          packRows(device, shape, pool, slots, bytes);
          assert.deepEqual(unpackRows(device, shape, pool, slots), bytes);
          // Every byte of the pool is somebody's: packing what was unpacked elsewhere gives an equal pool.
          const copy = allocPool(device, shape);
          const all = Array.from({ length: 256 }, (_, i) => i);
          packRows(device, shape, copy, all, unpackRows(device, shape, pool, all));
          assert.deepEqual(new Uint8Array(device.read(copy.pool)), new Uint8Array(device.read(pool.pool)));
        } finally {
          device.dispose();
        }
      });
    }
  }
}

test("a NaN is counted, its token is not stored, and the others are", () => {
  for (const backend of BACKENDS) {
    const device = openDevice({ backend });
    try {
      const shape: PoolShape = { format: "fp8", heads: 0, dim: 64, pages: 1 };
      const { pool } = allocPool(device, shape);
      const latent = new Float32Array(2 * 64).fill(2);
      latent[5] = Number.NaN;
      const stats = device.alloc("i32", [2]);
      device.ops.kv_write_mla({
        latent: device.fromHost("f32", [2, 64], latent),
        pool,
        scales: null,
        write_slots: device.fromHost("i32", [2], Int32Array.of(3, 9)),
        stats,
        format: kvFormatCode("fp8"),
        scale: 1,
      });
      assert.throws(() => device.sync(), /^Error: kv_write_mla: (1 NaN|NaN in the input: 1$)/);
      assert.deepEqual([...new Int32Array(device.read(stats))], [0, 1]);
      const rows = unpackRows(device, shape, { pool, scales: null }, [3, 9]);
      assert.ok(rows.subarray(0, 64).every((code) => code === 0));
      assert.ok(rows.subarray(64).every((code) => code === 0x40));
    } finally {
      device.dispose();
    }
  }
});
