// How close attention and sampling come to their floors on this machine; asserts nothing.
//   node test/bench/attention.ts [THREADS]
// floor = max(bytes that must be read / bandwidth, operations / rate), both rates measured here: `add` over 64 MB, and
// a dense product of the activations' dtype.
import { cpus } from "node:os";
import { linearRate, streamBandwidth } from "../../gpu-node/bench/floors.ts";
import { median } from "../../gpu-node/bench/measure.ts";
import type { SamplingParams } from "../../gpu-node/contract/engine.ts";
import {
  type KvFormat,
  type KvGeometry,
  kvBytesPerToken,
  kvFormatCode,
  kvPageBytes,
  kvScales,
  PAGE_TOKENS,
} from "../../gpu-node/kv/format.ts";
import { openDevice } from "../../gpu-node/native/device.ts";
import { GREEDY, paramsRecord, RECORD } from "../ops/sampling.ts";

const threads = process.argv[2] ? Number(process.argv[2]) : undefined;
const device = openDevice({ backend: "cpu", threads });
const bandwidth = streamBandwidth(device, 64e6, 10);
const rate = linearRate(device, "bf16", 10);

function measure(name: string, bytes: number, operations: number, body: () => void): void {
  const times: number[] = [];
  const began = performance.now();
  for (let i = 0; times.length < 7 || (performance.now() - began < 1000 && times.length < 300); i++) {
    const started = performance.now();
    body();
    device.sync();
    if (i > 1) times.push(performance.now() - started);
  }
  const ms = median(times);
  const floor = 1000 * Math.max(bytes / bandwidth, operations / rate);
  const speed = operations > 0 ? `, ${(operations / ms / 1e6).toFixed(0)} GFLOP/s` : "";
  console.log(
    `${name.padEnd(52)} ${ms.toFixed(3)} ms, floor ${floor.toFixed(3)} ms (${((100 * floor) / ms).toFixed(0)} %)${speed}`,
  );
}

interface Load {
  batch: number;
  past: number;
  count: number;
  format: KvFormat;
}

/** Arguments that all attention ops share, and the numbers of tokens and of (query, key) pairs. */
function rowsOf({ batch, past, count, format }: Load, geometry: KvGeometry) {
  const i32 = (shape: number[], data: Int32Array) => device.fromHost("i32", shape, data);
  const maxPages = Math.ceil((past + count) / PAGE_TOKENS);
  const pages = batch * maxPages + 1;
  const scales = kvScales(format, geometry);
  // Codes of values near 1, so that no sum is of zeros.
  const filled = new Uint8Array(pages * kvPageBytes(format, geometry)).fill(0x3c);
  return {
    tokens: batch * count,
    pairs: batch * (count * past + (count * (count + 1)) / 2),
    bytes: batch * past * kvBytesPerToken(format, geometry),
    args: {
      pool: device.fromHost("u8", [pages, kvPageBytes(format, geometry)], filled),
      scales: scales > 0 ? device.alloc("f32", [pages, PAGE_TOKENS, scales]) : null,
      page_table: i32(
        [batch, maxPages],
        Int32Array.from({ length: batch * maxPages }, (_, i) => i + 1),
      ),
      row_slot: i32(
        [batch],
        Int32Array.from({ length: batch }, (_, i) => i),
      ),
      row_start: i32(
        [batch + 1],
        Int32Array.from({ length: batch + 1 }, (_, i) => i * count),
      ),
      kv_len: i32([batch], new Int32Array(batch).fill(past + count)),
      softmax_scale: 0.07,
      format: kvFormatCode(format),
    },
  };
}

const describe = ({ batch, past, count, format }: Load) => `${batch} x (${past} + ${count}), ${format}`;

function mla(load: Load, heads: number, kvLora = 512, ropeDim = 64): void {
  const { tokens, pairs, bytes, args } = rowsOf(load, { kind: "mla", kvLora, ropeDim });
  const q = device.alloc("bf16", [tokens, heads, kvLora + ropeDim]);
  const latent = device.alloc("bf16", [tokens, kvLora + ropeDim]);
  const out = device.alloc("bf16", [tokens, heads, kvLora]);
  const operations = 2 * pairs * heads * (2 * kvLora + ropeDim);
  measure(`attention_mla ${heads} heads, ${describe(load)}`, bytes, operations, () =>
    device.ops.attention_mla({ q, latent, out, ...args, scale: 1, deterministic: 0 }),
  );
}

function expanded(load: Load, heads: number, nope = 128, value = 128, kvLora = 512, ropeDim = 64): void {
  const { tokens, pairs, bytes, args } = rowsOf(load, { kind: "mla", kvLora, ropeDim });
  const q = device.alloc("bf16", [tokens, heads, nope + ropeDim]);
  const latent = device.alloc("bf16", [tokens, kvLora + ropeDim]);
  const up = device.alloc("bf16", [heads, nope + value, kvLora]);
  const out = device.alloc("bf16", [tokens, heads, value]);
  const context = load.batch * (load.past + load.count);
  const operations = 2 * heads * (pairs * (nope + ropeDim + value) + context * kvLora * (nope + value));
  measure(`attention_mla_expanded ${heads} heads, ${describe(load)}`, bytes, operations, () =>
    device.ops.attention_mla_expanded({ q, latent, kv_up: up, out, ...args, scale: 1 }),
  );
}

function gqa(load: Load, heads: number, kvHeads: number, headDim = 128): void {
  const { tokens, pairs, bytes, args } = rowsOf(load, { kind: "gqa", kvHeads, headDim });
  const [q, out] = [0, 1].map(() => device.alloc("bf16", [tokens, heads, headDim]));
  const [k, v] = [0, 1].map(() => device.alloc("bf16", [tokens, kvHeads, headDim]));
  measure(
    `attention_gqa ${heads}/${kvHeads} heads, ${describe(load)}`,
    bytes,
    4 * pairs * heads * headDim,
    () => device.ops.attention_gqa({ q, k, v, out, ...args, k_scale: 1, v_scale: 1, deterministic: 0 }),
  );
}

function sample(name: string, vocab: number, rows: number, params: Partial<SamplingParams>): void {
  const records = Array.from({ length: rows }, () => [...paramsRecord({ ...GREEDY, ...params })]).flat();
  // Neighbouring ids differ, as logits do.
  const logits = Float32Array.from({ length: rows * vocab }, (_, i) => 4 * Math.sin(i * 12.9898));
  const args = {
    logits: device.fromHost("f32", [rows, vocab], logits),
    rows: device.fromHost(
      "i32",
      [rows, 4],
      Int32Array.from({ length: rows * 4 }, (_, i) => (i % 4 ? 0 : i / 4)),
    ),
    params: device.fromHost("i32", [rows, 16], Int32Array.from(records)),
    bias_ids: device.alloc("i32", [rows, 1]),
    bias_values: device.alloc("f32", [rows, 1]),
    history: device.alloc("i32", [rows, 8]),
    out: device.alloc("i32", [rows, RECORD]),
  };
  measure(`sample ${rows} x ${vocab}, ${name}`, 4 * rows * vocab, 0, () => device.ops.sample(args));
}

console.log(
  `${cpus()[0].model}, ${device.isa}, ${device.threads} threads, ${new Date().toISOString()}: ` +
    `${(bandwidth / 1e9).toFixed(1)} GB/s, ${(rate / 1e9).toFixed(0)} GFLOP/s`,
);
for (const [batch, past] of [
  [1, 1023],
  [1, 16383],
  [16, 1023],
  [64, 1023],
]) {
  mla({ batch, past, count: 1, format: "fp8" }, 4);
}
mla({ batch: 1, past: 1023, count: 1, format: "bf16" }, 4);
mla({ batch: 1, past: 1024, count: 64, format: "fp8" }, 4);
for (const past of [0, 1536]) expanded({ batch: 1, past, count: 512, format: "fp8" }, 4);
expanded({ batch: 1, past: 0, count: 2048, format: "bf16" }, 4);
gqa({ batch: 1, past: 1023, count: 1, format: "bf16" }, 32, 8);
gqa({ batch: 16, past: 1023, count: 1, format: "fp8" }, 32, 8);
gqa({ batch: 1, past: 0, count: 512, format: "bf16" }, 32, 8);
sample("greedy", 4096, 64, {});
sample("temperature", 4096, 64, { temperature: 1 });
sample("top-k and top-p", 4096, 64, { temperature: 1, topK: 50, topP: 0.9 });
sample("greedy", 151_936, 8, {});
sample("top-p", 151_936, 8, { temperature: 1, topP: 0.9 });
sample("flat, top-p", 151_936, 8, { temperature: 100, topP: 0.9 });
sample("20 log probabilities", 151_936, 8, { temperature: 1, topLogprobs: 20 });
device.dispose();
