// Decode at the widths of DeepSeek, which have kernels of their own on a GPU: what a single call does not show.
import assert from "node:assert/strict";
import { test } from "node:test";
import { type KvFormat, kvFormatCode, PAGE_TOKENS } from "../../gpu-node/kv/format.ts";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";
import { decodeBf16, encodeBf16 } from "./formats.ts";
import { availableIsas, hasCuda } from "./harness.ts";
import { allocPool, decodeElements, encodeElements, packRows, rowBytes, unpackRows } from "./kv.ts";
import { Random } from "./random.ts";

const HEADS = 16;
const LORA = 512;
const WIDTH = LORA + 64;

/** Rows of one new token after `past` stored ones. */
class Decode {
  readonly #device: OpDevice;
  readonly #format: KvFormat;
  readonly #past: number[];
  readonly #pool: ReturnType<typeof allocPool>;
  readonly #maxPages: number;
  readonly #table: Int32Array;
  readonly #q: Uint16Array;
  readonly #latent: Uint16Array;
  softmaxScale = 0.06;

  constructor(device: OpDevice, format: KvFormat, past: number[], element: (random: Random) => number) {
    this.#device = device;
    this.#format = format;
    this.#past = past;
    const random = new Random(11);
    this.#maxPages = Math.ceil((Math.max(...past) + 1) / PAGE_TOKENS);
    const pages = past.length * this.#maxPages;
    this.#table = Int32Array.from({ length: pages }, (_, i) => (i * 11) % pages); // pages is no multiple of 11
    assert.ok(pages % 11 !== 0);
    const shape = { format, heads: 0, dim: WIDTH, pages };
    this.#pool = allocPool(device, shape);
    const bytes = rowBytes(shape);
    const rows = new Uint8Array(pages * PAGE_TOKENS * bytes);
    for (let t = 0; t < pages * PAGE_TOKENS; t++) {
      const x = Float64Array.from({ length: WIDTH }, () => element(random));
      const codes = encodeElements(format, x);
      rows.set(codes, t * bytes);
      if (format === "fp8-token")
        rows.set(new Uint8Array(Float32Array.of(0.5 + random.next()).buffer), t * bytes + codes.length);
    }
    packRows(
      device,
      shape,
      this.#pool,
      Array.from({ length: pages * PAGE_TOKENS }, (_, i) => i),
      rows,
    );
    const bf16 = (n: number) => Uint16Array.from({ length: n }, () => encodeBf16(random.normal()));
    this.#q = bf16(past.length * HEADS * WIDTH);
    this.#latent = bf16(past.length * WIDTH);
  }

  /** The outputs of the rows of these indices in one call, bf16 [rows, HEADS, LORA]. */
  run(rows: number[], deterministic: number): Uint16Array[] {
    const device = this.#device;
    const n = rows.length;
    const i32 = (list: ArrayLike<number>) => device.fromHost("i32", [list.length], Int32Array.from(list));
    const gather = (from: Uint16Array, width: number) => {
      const all = new Uint16Array(n * width);
      rows.forEach((row, i) => {
        all.set(from.subarray(row * width, (row + 1) * width), i * width);
      });
      return all;
    };
    const out = device.alloc("bf16", [n, HEADS, LORA]);
    device.ops.attention_mla({
      q: device.fromHost("bf16", [n, HEADS, WIDTH], gather(this.#q, HEADS * WIDTH)),
      latent: device.fromHost("bf16", [n, WIDTH], gather(this.#latent, WIDTH)),
      pool: this.#pool.pool,
      scales: this.#pool.scales,
      page_table: device.fromHost("i32", [this.#past.length, this.#maxPages], this.#table),
      row_slot: i32(rows),
      row_start: i32(Array.from({ length: n + 1 }, (_, i) => i)),
      kv_len: i32(rows.map((row) => this.#past[row] + 1)),
      out,
      softmax_scale: this.softmaxScale,
      format: kvFormatCode(this.#format),
      scale: 0.7,
      deterministic,
    });
    const all = new Uint16Array(device.read(out));
    return rows.map((_, i) => all.slice(i * HEADS * LORA, (i + 1) * HEADS * LORA));
  }

  /** The outputs of a row in float64. */
  wanted(row: number): Float64Array {
    const shape = { format: this.#format, heads: 0, dim: WIDTH, pages: this.#table.length };
    const pages = this.#table.subarray(row * this.#maxPages);
    const slots = Array.from(
      { length: this.#past[row] },
      (_, i) => pages[Math.floor(i / PAGE_TOKENS)] * PAGE_TOKENS + (i % PAGE_TOKENS),
    );
    const stored = unpackRows(this.#device, shape, this.#pool, slots);
    const keys = decodeRows(this.#format, stored, slots.length, 0.7);
    keys.push(Float64Array.from(this.#latent.subarray(row * WIDTH, (row + 1) * WIDTH), decodeBf16));
    const out = new Float64Array(HEADS * LORA);
    for (let h = 0; h < HEADS; h++) {
      const at = (row * HEADS + h) * WIDTH;
      const q = Float64Array.from(this.#q.subarray(at, at + WIDTH), decodeBf16);
      const scores = keys.map((k) => this.softmaxScale * k.reduce((sum, x, i) => sum + x * q[i], 0));
      const top = Math.max(...scores);
      const weights = scores.map((s) => Math.exp(s - top));
      const total = weights.reduce((a, b) => a + b, 0);
      keys.forEach((k, j) => {
        for (let i = 0; i < LORA; i++) out[h * LORA + i] += (weights[j] / total) * k[i];
      });
    }
    return out;
  }
}

function decodeRows(format: KvFormat, bytes: Uint8Array, count: number, scale: number): Float64Array[] {
  const size = rowBytes({ format, heads: 0, dim: WIDTH, pages: 0 });
  return Array.from({ length: count }, (_, t) => {
    const row = bytes.slice(t * size, (t + 1) * size);
    if (format === "bf16") return Float64Array.from(new Uint16Array(row.buffer), decodeBf16);
    const own = format === "fp8" ? scale : new Float32Array(row.slice(WIDTH).buffer)[0];
    return decodeElements("fp8", row.subarray(0, WIDTH)).map((x) => x * own);
  });
}

const VARIANTS = [
  ...availableIsas().map((isa) => ({ backend: "cpu" as const, isa, threads: 2 })),
  ...(hasCuda() ? [{ backend: "cuda" as const }] : []),
];

for (const variant of VARIANTS) {
  const name = "isa" in variant ? variant.isa : variant.backend;
  for (const format of ["fp8", "fp8-token", "bf16"] as const) {
    test(`deterministic: a row has the same bits alone, in a batch of 7 and in another order: ${format}, ${name}`, () => {
      const device = openDevice(variant);
      const rows = [0, 1, 2, 3, 4, 5, 6];
      const decode = new Decode(device, format, [63, 64, 1, 600, 0, 65, 20], (random) => random.normal());
      const together = decode.run(rows, 1);
      const reversed = decode.run(rows.toReversed(), 1).toReversed();
      for (const row of rows) {
        assert.deepEqual(reversed[row], together[row], `row ${row} in the reversed batch`);
        if (row % 3 === 0) assert.deepEqual(decode.run([row], 1)[0], together[row], `row ${row} alone`);
      }
      device.dispose();
    });
  }

  // The CPU's arithmetic on bf16 activations is that of bf16, and is held to less by the case tables.
  if (variant.backend !== "cuda") continue;
  for (const format of ["fp8", "fp8-token", "bf16"] as const) {
    test(`codes up to 448 and subnormal ones: within 2e-3 of the RMS of float64, and a rounding: ${format}, ${name}`, () => {
      const device = openDevice(variant);
      const edges = [448, -448, 2 ** -9, -3 * 2 ** -9, 2 ** -7, 0, 17, -256];
      const element = (random: Random) => {
        const kind = random.next();
        return kind < 0.01 ? edges[Math.floor(800 * kind)] : random.normal();
      };
      const decode = new Decode(device, format, [130, 1, 64, 300], element);
      decode.softmaxScale = 0.004;
      const got = decode.run([0, 1, 2, 3], 0);
      got.forEach((bits, row) => {
        const wanted = decode.wanted(row);
        const rms = Math.sqrt(wanted.reduce((sum, x) => sum + x * x, 0) / wanted.length);
        let worst = 0;
        wanted.forEach((x, i) => {
          worst = Math.max(worst, (Math.abs(decodeBf16(bits[i]) - x) - Math.abs(x) / 256) / rms);
        });
        assert.ok(worst <= 2e-3, `row ${row}: ${worst}`);
      });
      device.dispose();
    });
  }
}
