// What the engine relies on, over several calls: chunks, batches and the order of writing and reading.
import assert from "node:assert/strict";
import { test } from "node:test";
import { kvFormatCode, PAGE_TOKENS } from "../../gpu-node/kv/format.ts";
import type { Tensor } from "../../gpu-node/native/addon.ts";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";
import { loadAddon } from "../../gpu-node/native/load.ts";
import { availableIsas, hasCuda } from "./harness.ts";
import { allocPool } from "./kv.ts";
import { Random } from "./random.ts";

const OPS = ["attention_gqa", "attention_mla", "attention_mla_expanded"] as const;
type AttentionOp = (typeof OPS)[number];

const HEADS = 4;
const KV_HEADS = 2;
const DIM = 32; // GQA head dim; MLA: nope, rope and v dims 16, 16 and 32
const LORA = 64;
const ROPE = 16;

interface Part {
  sequence: number;
  past: number;
  count: number;
}

/** Sequences of random tokens, their pages, and attention over any parts of them in one call. */
class Fixture {
  readonly device: OpDevice;
  readonly op: AttentionOp;
  readonly lengths: number[];
  deterministic = 0;
  readonly #q: Float32Array[];
  readonly #k: Float32Array[];
  readonly #v: Float32Array[];
  readonly #up: Tensor | null;
  readonly #pool: Tensor;
  readonly #table: Tensor;
  readonly #widths: { q: number; k: number; v: number; out: number };

  constructor(device: OpDevice, op: AttentionOp, lengths: number[]) {
    this.device = device;
    this.op = op;
    this.lengths = lengths;
    const random = new Random(3);
    const data = (n: number) => Float32Array.from({ length: n }, () => random.normal());
    const mla = op !== "attention_gqa";
    const latent = LORA + ROPE;
    this.#widths = mla
      ? {
          q: HEADS * (op === "attention_mla" ? latent : DIM),
          k: latent,
          v: 0,
          out: HEADS * (op === "attention_mla" ? LORA : DIM),
        }
      : { q: HEADS * DIM, k: KV_HEADS * DIM, v: KV_HEADS * DIM, out: HEADS * DIM };
    this.#q = lengths.map((n) => data(n * this.#widths.q));
    this.#k = lengths.map((n) => data(n * this.#widths.k));
    this.#v = lengths.map((n) => data(n * this.#widths.v));
    const up = data(HEADS * (DIM - ROPE + DIM) * LORA).map((x) => x / 8);
    this.#up =
      op === "attention_mla_expanded" ? device.fromHost("f32", [HEADS, DIM - ROPE + DIM, LORA], up) : null;
    const maxPages = Math.ceil(Math.max(...lengths) / PAGE_TOKENS);
    const shape = { format: "f32" as const, heads: mla ? 0 : KV_HEADS, dim: mla ? latent : DIM };
    this.#pool = allocPool(device, { ...shape, pages: lengths.length * maxPages + 1 }).pool;
    const table = Int32Array.from(
      { length: lengths.length * maxPages },
      (_, i) => lengths.length * maxPages - i,
    );
    this.#table = device.fromHost("i32", [lengths.length, maxPages], table);
  }

  /** Outputs per part, [count, out]. The new tokens are stored after they were read, or before. */
  run(parts: Part[], writeFirst = false): Float32Array[] {
    const { device, op, deterministic } = this;
    const tokens = parts.reduce((n, part) => n + part.count, 0);
    const gather = (from: Float32Array[], width: number) => {
      const all = new Float32Array(tokens * width);
      let at = 0;
      for (const { sequence, past, count } of parts) {
        all.set(from[sequence].subarray(past * width, (past + count) * width), at);
        at += count * width;
      }
      return all;
    };
    const i32 = (list: number[]) => device.fromHost("i32", [list.length], Int32Array.from(list));
    const w = this.#widths;
    const start = [0];
    for (const part of parts) start.push(start[start.length - 1] + part.count);
    const rows = {
      pool: this.#pool,
      scales: null,
      page_table: this.#table,
      row_slot: i32(parts.map((part) => part.sequence)),
      row_start: i32(start),
      kv_len: i32(parts.map((part) => part.past + part.count)),
      softmax_scale: 0.2,
      format: kvFormatCode("f32"),
    };
    const tableHost = new Int32Array(device.read(this.#table));
    const maxPages = this.#table.shape[1];
    const slots = parts.flatMap(({ sequence, past, count }) =>
      Array.from({ length: count }, (_, i) => {
        const page = tableHost[sequence * maxPages + Math.floor((past + i) / PAGE_TOKENS)];
        return page * PAGE_TOKENS + ((past + i) % PAGE_TOKENS);
      }),
    );
    const q = device.fromHost("f32", [tokens, HEADS, w.q / HEADS], gather(this.#q, w.q));
    const out = device.alloc("f32", [tokens, HEADS, w.out / HEADS]);
    const written = {
      pool: this.#pool,
      scales: null,
      write_slots: i32(slots),
      stats: device.alloc("i32", [2]),
      format: rows.format,
    };
    let attend: () => void;
    let write: () => void;
    if (op === "attention_gqa") {
      const k = device.fromHost("f32", [tokens, KV_HEADS, DIM], gather(this.#k, w.k));
      const v = device.fromHost("f32", [tokens, KV_HEADS, DIM], gather(this.#v, w.v));
      const scales = { k_scale: 1, v_scale: 1 };
      attend = () => device.ops.attention_gqa({ q, k, v, out, ...rows, ...scales, deterministic });
      write = () => device.ops.kv_write_gqa({ k, v, ...written, k_scale: 1, v_scale: 1 });
    } else {
      const latent = device.fromHost("f32", [tokens, w.k], gather(this.#k, w.k));
      attend =
        this.#up === null
          ? () => device.ops.attention_mla({ q, latent, out, ...rows, scale: 1, deterministic })
          : () => device.ops.attention_mla_expanded({ q, latent, kv_up: this.#up!, out, ...rows, scale: 1 });
      write = () => device.ops.kv_write_mla({ latent, ...written, scale: 1 });
    }
    for (const step of writeFirst ? [write, attend] : [attend, write]) step();
    const all = new Float32Array(device.read(out));
    return start.slice(1).map((end, i) => all.slice(start[i] * w.out, end * w.out));
  }

  /** All outputs of one sequence computed in chunks. */
  inChunks(sequence: number, chunk: number): Float32Array {
    const width = this.#widths.out;
    const all = new Float32Array(this.lengths[sequence] * width);
    for (let past = 0; past < this.lengths[sequence]; past += chunk) {
      const count = Math.min(chunk, this.lengths[sequence] - past);
      all.set(this.run([{ sequence, past, count }])[0], past * width);
    }
    return all;
  }
}

function largestDifference(a: Float32Array, b: Float32Array): number {
  assert.equal(a.length, b.length);
  return a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);
}

const VARIANTS = [
  { backend: "reference" as const, threads: 1 },
  ...availableIsas().map((isa) => ({ backend: "cpu" as const, isa, threads: 2 })),
  ...(hasCuda() ? [{ backend: "cuda" as const }] : []),
];

const ON_CUDA = loadAddon()
  .ops()
  .filter(({ backends }) => backends.includes("cuda"))
  .map(({ name }) => name);
const WRITES = {
  attention_gqa: "kv_write_gqa",
  attention_mla: "kv_write_mla",
  attention_mla_expanded: "kv_write_mla",
};

for (const op of OPS) {
  for (const variant of VARIANTS) {
    if (variant.backend === "cuda" && ![op, WRITES[op]].every((name) => ON_CUDA.includes(name))) continue;
    const name = `${op}, ${"isa" in variant ? variant.isa : variant.backend}`;

    test(`f32 results are the same in chunks of 1, 7, 64 and whole: ${name}`, () => {
      const device = openDevice(variant);
      const whole = new Fixture(device, op, [290]).inChunks(0, 290);
      for (const chunk of [1, 7, 64]) {
        const difference = largestDifference(new Fixture(device, op, [290]).inChunks(0, chunk), whole);
        assert.ok(difference <= 5e-6, `chunk ${chunk}: ${difference}`);
      }
      device.dispose();
    });

    if (op !== "attention_mla_expanded") {
      test(`deterministic results have the same bits in chunks of any length: ${name}`, () => {
        const device = openDevice(variant);
        const [length, longest] = variant.backend === "cuda" ? [200, 133] : [1100, 333]; // an emulated GPU is slow
        const inChunks = (chunk: number) => {
          const fixture = new Fixture(device, op, [length]);
          fixture.deterministic = 1;
          return fixture.inChunks(0, chunk);
        };
        const whole = inChunks(length);
        for (const chunk of [3, 64, longest]) assert.deepEqual(inChunks(chunk), whole, `chunk ${chunk}`);
        device.dispose();
      });
    }

    test(`a row has the same bits alone and among others, stored before or after: ${name}`, () => {
      const device = openDevice(variant);
      const lengths = [700, 65, 128, 300, 1];
      const fixture = new Fixture(device, op, lengths);
      const parts: Part[] = [
        { sequence: 0, past: 699, count: 1 },
        { sequence: 1, past: 60, count: 5 },
        { sequence: 2, past: 0, count: 128 },
        { sequence: 3, past: 100, count: 200 },
        { sequence: 4, past: 0, count: 1 },
      ];
      for (const { sequence, past } of parts) if (past > 0) fixture.run([{ sequence, past: 0, count: past }]);
      const together = fixture.run(parts, true);
      const reversed = fixture.run(parts.toReversed()).toReversed();
      parts.forEach((part, i) => {
        const [alone] = fixture.run([part]);
        assert.deepEqual(together[i], alone, `part ${i} in a batch`);
        assert.deepEqual(reversed[i], alone, `part ${i} in the reversed batch`);
      });
      device.dispose();
    });
  }
}
