// The tensor-core kernels of attention_gqa take bf16 activations, which attention.test.ts does not use: what --deterministic
// promises of them, and what holds without it.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type KvFormat, kvFormatCode, PAGE_TOKENS } from "../../gpu-node/kv/format.ts";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";
import { toBytes } from "./formats.ts";
import { hasCuda } from "./harness.ts";
import { allocPool } from "./kv.ts";
import { Random } from "./random.ts";

const LENGTH = 150;
const GROUP = 3;
const KV_HEADS = 2;
const DIM = 64;
const BF16 = 2; // bytes

type Part = [past: number, count: number];

const random = new Random(9);
const tokens = (width: number) =>
  toBytes(
    "bf16",
    Float64Array.from({ length: LENGTH * width }, () => random.normal()),
  );
const WIDTH = { q: KV_HEADS * GROUP * DIM, kv: KV_HEADS * DIM };
const Q = tokens(WIDTH.q);
const K = tokens(WIDTH.kv);
const V = tokens(WIDTH.kv);

/** Outputs of parts of one stored sequence, each a row of the same call. */
function attend(device: OpDevice, format: KvFormat, deterministic: boolean, parts: Part[]): Buffer[] {
  const i32 = (list: number[], shape = [list.length]) => device.fromHost("i32", shape, Int32Array.from(list));
  const pages = Math.ceil(LENGTH / PAGE_TOKENS);
  const { pool, scales } = allocPool(device, { format, heads: KV_HEADS, dim: DIM, pages });
  const cache = { pool, scales, format: kvFormatCode(format), k_scale: 0.02, v_scale: 0.03 };
  const order = Array.from({ length: pages }, (_, i) => pages - 1 - i);
  device.ops.kv_write_gqa({
    ...cache,
    k: device.fromHost("bf16", [LENGTH, KV_HEADS, DIM], K),
    v: device.fromHost("bf16", [LENGTH, KV_HEADS, DIM], V),
    write_slots: i32(
      Array.from(
        { length: LENGTH },
        (_, i) => order[Math.floor(i / PAGE_TOKENS)] * PAGE_TOKENS + (i % PAGE_TOKENS),
      ),
    ),
    stats: device.alloc("i32", [2]),
  });
  const start = [0];
  for (const [, count] of parts) start.push(start[start.length - 1] + count);
  const total = start[parts.length];
  const gather = (from: Uint8Array, width: number) =>
    Buffer.concat(
      parts.map(([past, count]) => from.subarray(past * width * BF16, (past + count) * width * BF16)),
    );
  const out = device.alloc("bf16", [total, KV_HEADS * GROUP, DIM]);
  device.ops.attention_gqa({
    ...cache,
    q: device.fromHost("bf16", [total, KV_HEADS * GROUP, DIM], gather(Q, WIDTH.q)),
    k: device.fromHost("bf16", [total, KV_HEADS, DIM], gather(K, WIDTH.kv)),
    v: device.fromHost("bf16", [total, KV_HEADS, DIM], gather(V, WIDTH.kv)),
    page_table: i32(order, [1, pages]),
    row_slot: i32(parts.map(() => 0)),
    row_start: i32(start),
    kv_len: i32(parts.map(([past, count]) => past + count)),
    out,
    softmax_scale: DIM ** -0.5,
    deterministic: Number(deterministic),
  });
  const bytes = Buffer.from(device.read(out));
  const token = WIDTH.q * BF16;
  return parts.map((_, i) => bytes.subarray(start[i] * token, start[i + 1] * token));
}

const device = hasCuda() ? openDevice({ backend: "cuda" }) : undefined;
const skip = device ? false : "needs CUDA";
after(() => device?.dispose());

const PARTS: Part[] = [
  [145, 5],
  [100, 30],
  [149, 1],
  [0, 1],
  [64, 9],
];

test("deterministic: a token over a bf16 cache has the same bits in a chunk of any length", { skip }, () => {
  const [whole] = attend(device!, "bf16", true, [[0, LENGTH]]);
  attend(device!, "bf16", true, PARTS).forEach((got, i) => {
    const at = PARTS[i][0] * WIDTH.q * BF16;
    assert.ok(got.equals(whole.subarray(at, at + got.length)), `part ${i}`);
  });
});

for (const format of ["bf16", "fp8", "fp8-token"] as const) {
  test(`deterministic: a row has the same bits alone and among others: ${format}`, { skip }, () => {
    attend(device!, format, true, PARTS).forEach((got, i) => {
      assert.ok(got.equals(attend(device!, format, true, [PARTS[i]])[0]), `part ${i}`);
    });
  });
}

test("a chunk has the same bits alone and among others without it too", { skip }, () => {
  attend(device!, "fp8", false, PARTS).forEach((got, i) => {
    if (PARTS[i][1] > 8) assert.ok(got.equals(attend(device!, "fp8", false, [PARTS[i]])[0]), `part ${i}`);
  });
});
