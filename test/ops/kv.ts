// Paged caches and rows for the case tables of the attention and KV ops. Pools are made and read through kv_pack and
// kv_unpack of the reference backend, so that no test knows the byte order of a page.

import {
  type KvFormat,
  kvBytesPerToken,
  kvFormatCode,
  kvPageBytes,
  PAGE_TOKENS,
} from "../../gpu-node/kv/format.ts";
import type { Tensor } from "../../gpu-node/native/addon.ts";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";
import { decodeBf16, decodeE4m3, encodeBf16, encodeE4m3 } from "./formats.ts";
import type { HostTensor, Tolerance } from "./harness.ts";
import { type Fill, Random, uniform, values } from "./random.ts";
import type { TensorCase } from "./tensors.ts";

/** f32 attention: rounding of a score of magnitude 10 or more is multiplied by the softmax. */
export const F32_SOFTMAX: Tolerance = { abs: 1e-5, rel: 1e-5 };

export interface PoolShape {
  format: KvFormat;
  /** kv heads; 0: MLA, one vector of `dim` */
  heads: number;
  dim: number;
  pages: number;
}

export function vectorsOf(shape: PoolShape): number {
  return shape.heads === 0 ? 1 : 2 * shape.heads;
}

function geometry(shape: PoolShape) {
  return shape.heads === 0
    ? ({ kind: "mla", kvLora: shape.dim, ropeDim: 0 } as const)
    : ({ kind: "gqa", kvHeads: shape.heads, headDim: shape.dim } as const);
}

export const pageBytes = (shape: PoolShape) => kvPageBytes(shape.format, geometry(shape));
export const rowBytes = (shape: PoolShape) => kvBytesPerToken(shape.format, geometry(shape));

/** Codes of one vector in a format, and back; `scale` as stored, static or of the token. */
export function encodeElements(format: KvFormat, x: ArrayLike<number>): Uint8Array {
  if (format === "f32") return new Uint8Array(Float32Array.from(x).buffer);
  if (format === "bf16") return new Uint8Array(Uint16Array.from(x, encodeBf16).buffer);
  return Uint8Array.from(x, encodeE4m3);
}

export function decodeElements(format: KvFormat, bytes: Uint8Array): Float64Array {
  const copy = bytes.slice();
  if (format === "f32") return Float64Array.from(new Float32Array(copy.buffer));
  if (format === "bf16") return Float64Array.from(new Uint16Array(copy.buffer), decodeBf16);
  return Float64Array.from(copy, decodeE4m3);
}

/** Device tensors of a pool; `scales` is null where the format has none. */
export function allocPool(device: OpDevice, shape: PoolShape): { pool: Tensor; scales: Tensor | null } {
  const scaled = shape.format === "fp8-token";
  return {
    pool: device.alloc("u8", [shape.pages, pageBytes(shape)]),
    scales: scaled ? device.alloc("f32", [shape.pages, PAGE_TOKENS, vectorsOf(shape)]) : null,
  };
}

export function packRows(
  device: OpDevice,
  shape: PoolShape,
  target: { pool: Tensor; scales: Tensor | null },
  slots: ArrayLike<number>,
  rows: Uint8Array,
): void {
  device.ops.kv_pack({
    rows: device.fromHost("u8", [slots.length, rowBytes(shape)], rows),
    pool: target.pool,
    scales: target.scales,
    slots: device.fromHost("i32", [slots.length], Int32Array.from(slots)),
    format: kvFormatCode(shape.format),
    heads: shape.heads,
  });
}

export function unpackRows(
  device: OpDevice,
  shape: PoolShape,
  source: { pool: Tensor; scales: Tensor | null },
  slots: ArrayLike<number>,
): Uint8Array {
  const rows = device.alloc("u8", [slots.length, rowBytes(shape)]);
  device.ops.kv_unpack({
    pool: source.pool,
    scales: source.scales,
    slots: device.fromHost("i32", [slots.length], Int32Array.from(slots)),
    rows,
    format: kvFormatCode(shape.format),
    heads: shape.heads,
  });
  return new Uint8Array(device.read(rows));
}

function onReference<T>(body: (device: OpDevice) => T): T {
  const device = openDevice({ backend: "reference", threads: 1 });
  try {
    return body(device);
  } finally {
    device.dispose();
  }
}

const allSlots = (shape: PoolShape) => Array.from({ length: shape.pages * PAGE_TOKENS }, (_, i) => i);

/** The arguments pool, scales and format, filled with values of about `deviation`. */
export function poolArgs(shape: PoolShape, deviation = 1) {
  const fill: Fill = (_count, random: Random) =>
    onReference((device) => {
      const target = allocPool(device, shape);
      const slots = allSlots(shape);
      const elements = vectorsOf(shape) * shape.dim;
      const rows = new Uint8Array(slots.length * rowBytes(shape));
      for (const slot of slots) {
        const x = Float64Array.from({ length: elements }, () => deviation * random.normal());
        rows.set(encodeElements(shape.format, x), slot * rowBytes(shape));
      }
      packRows(device, shape, target, slots, rows);
      return new Uint8Array(device.read(target.pool));
    });
  const scales: TensorCase | null =
    shape.format === "fp8-token"
      ? { dtype: "f32", shape: [shape.pages, PAGE_TOKENS, vectorsOf(shape)], fill: uniform(0.5, 1.5) }
      : null;
  const pool: TensorCase = { dtype: "u8", shape: [shape.pages, pageBytes(shape)], fill, kv: shape };
  return { pool, scales, format: kvFormatCode(shape.format) };
}

/** The bytes of a pool moved between backends: each has a byte order of its own. The scales lie as they are. */
function movePool(from: OpDevice, to: OpDevice, shape: PoolShape, bytes: Uint8Array): Uint8Array {
  const all = allSlots(shape);
  const side = (device: OpDevice) => allocPool(device, shape).scales;
  const source = { pool: from.fromHost("u8", [shape.pages, pageBytes(shape)], bytes), scales: side(from) };
  const target = allocPool(to, shape);
  packRows(to, shape, target, all, unpackRows(from, shape, source, all));
  return new Uint8Array(to.read(target.pool));
}

export const poolForDevice = (device: OpDevice, shape: PoolShape, bytes: Uint8Array) =>
  onReference((reference) => movePool(reference, device, shape, bytes));

export const poolFromDevice = (device: OpDevice, shape: PoolShape, bytes: Uint8Array) =>
  onReference((reference) => movePool(device, reference, shape, bytes));

/**
 * Pool bytes and scales after storing canonical rows: the oracle of the writing ops.
 * Rows are values [tokens, vectors, dim], already divided by their scale; `scales` is [tokens, vectors] for fp8-token.
 */
export function poolAfter(
  shape: PoolShape,
  tensors: Readonly<Record<string, HostTensor>>,
  slots: number[],
  rows: Float64Array[],
  scales: Float64Array[],
): Record<string, ArrayLike<number>> {
  return onReference((device) => {
    const pool = device.fromHost("u8", tensors.pool.shape, Uint8Array.from(tensors.pool.data));
    const side = tensors.scales
      ? device.fromHost("f32", tensors.scales.shape, Float32Array.from(tensors.scales.data))
      : null;
    const bytes = new Uint8Array(slots.length * rowBytes(shape));
    rows.forEach((row, i) => {
      const codes = encodeElements(shape.format, row);
      bytes.set(codes, i * rowBytes(shape));
      if (side)
        bytes.set(new Uint8Array(Float32Array.from(scales[i]).buffer), i * rowBytes(shape) + codes.length);
    });
    if (slots.length > 0) packRows(device, shape, { pool, scales: side }, slots, bytes);
    const after = { pool: new Uint8Array(device.read(pool)) };
    return side ? { ...after, scales: Float64Array.from(new Float32Array(device.read(side))) } : after;
  });
}

/** What the format stores for a vector: values to be rounded to its codes, the scale, and how many were clipped. */
export function quantize(format: KvFormat, x: ArrayLike<number>, staticScale: number) {
  const values = Float64Array.from(x);
  if (format === "f32" || format === "bf16") return { values, scale: 1, saturated: 0 };
  const finite = values.map(Math.abs).filter(Number.isFinite);
  const largest = Math.max(0, ...finite);
  const own = largest === 0 ? 1 : Math.max(Math.fround(largest / 448), 2 ** -126);
  const scale = format === "fp8-token" ? own : Math.fround(staticScale);
  const quotients = values.map((value) => Math.fround(value / scale));
  const limit = format === "fp8-token" ? 464 : 448;
  return { values: quotients, scale, saturated: quotients.filter((q) => Math.abs(q) > limit).length };
}

/** Everything that a pool holds, [pages * 64, vectors, dim], with the scales per token applied, static ones not. */
export function storedVectors(shape: PoolShape, tensors: Readonly<Record<string, HostTensor>>): Float64Array {
  return onReference((device) => {
    const pool = device.fromHost("u8", tensors.pool.shape, Uint8Array.from(tensors.pool.data));
    const scales = tensors.scales
      ? device.fromHost("f32", tensors.scales.shape, Float32Array.from(tensors.scales.data))
      : null;
    const slots = allSlots(shape);
    const rows = unpackRows(device, shape, { pool, scales }, slots);
    const elements = vectorsOf(shape) * shape.dim;
    const out = new Float64Array(slots.length * elements);
    const elementBytes = shape.format === "f32" ? 4 : shape.format === "bf16" ? 2 : 1;
    for (const slot of slots) {
      const at = slot * rowBytes(shape);
      const x = decodeElements(shape.format, rows.subarray(at, at + elements * elementBytes));
      const scale = tensors.scales?.data;
      out.set(
        x.map((value, i) =>
          scale ? value * scale[slot * vectorsOf(shape) + Math.floor(i / shape.dim)] : value,
        ),
        slot * elements,
      );
    }
    return out;
  });
}

/** A row of a step: `count` new tokens after `past` stored ones; `void` rows have kv_len 0. */
export interface RowSpec {
  past: number;
  count: number;
  void?: boolean;
}

/** The arguments page_table, row_slot, row_start and kv_len; every row has pages of its own, in random order. */
export function rowArgs(rows: RowSpec[], seed = 1) {
  const random = new Random(seed);
  const need = rows.map((row) => Math.ceil((row.past + row.count) / PAGE_TOKENS));
  const total = need.reduce((a, b) => a + b, 0);
  const free = Array.from({ length: total }, (_, i) => i + 1); // page 0 is nobody's
  for (let i = total - 1; i > 0; i--) {
    const j = Math.floor((i + 1) * random.next());
    [free[i], free[j]] = [free[j], free[i]];
  }
  const maxPages = Math.max(1, ...need);
  const table = new Int32Array(rows.length * maxPages);
  const slots = rows.map((_, i) => rows.length - 1 - i);
  rows.forEach((_, i) => {
    for (let p = 0; p < need[i]; p++) table[slots[i] * maxPages + p] = free.pop() as number;
  });
  const start = [0];
  for (const row of rows) start.push(start[start.length - 1] + row.count);
  const i32 = (shape: number[], data: ArrayLike<number>): TensorCase => ({
    dtype: "i32",
    shape,
    fill: values(data),
  });
  return {
    tokens: start[rows.length],
    pages: total + 1,
    args: {
      page_table: i32([rows.length, maxPages], table),
      row_slot: i32([rows.length], slots),
      row_start: i32([rows.length + 1], start),
      kv_len: i32(
        [rows.length],
        rows.map((row) => (row.void ? 0 : row.past + row.count)),
      ),
    },
  };
}

/** What the oracles share: calls visit(token, slots of its stored past, new tokens it sees) for tokens of live rows. */
export function forEachToken(
  tensors: Readonly<Record<string, HostTensor>>,
  visit: (token: number, past: number[], fresh: number[]) => void,
): void {
  const { page_table: table, row_slot: slot, row_start: start, kv_len: length } = tensors;
  for (let r = 0; r < length.data.length; r++) {
    const count = start.data[r + 1] - start.data[r];
    if (length.data[r] === 0) continue;
    const pages = table.data.subarray(slot.data[r] * table.shape[1]);
    const past = Array.from(
      { length: length.data[r] - count },
      (_, i) => pages[Math.floor(i / PAGE_TOKENS)] * PAGE_TOKENS + (i % PAGE_TOKENS),
    );
    for (let t = 0; t < count; t++) {
      const fresh = Array.from({ length: t + 1 }, (_, i) => start.data[r] + i);
      visit(start.data[r] + t, past, fresh);
    }
  }
}

/** softmax(scale * keys . q) . values in float64. */
export function attend(
  q: Float64Array,
  keys: Float64Array[],
  vals: Float64Array[],
  scale: number,
): Float64Array {
  const scores = keys.map((k) => scale * k.reduce((sum, x, i) => sum + x * q[i], 0));
  const top = Math.max(...scores);
  const weights = scores.map((s) => Math.exp(s - top));
  const total = weights.reduce((a, b) => a + b, 0);
  const out = new Float64Array(vals[0].length);
  for (let j = 0; j < vals.length; j++) {
    for (let i = 0; i < out.length; i++) out[i] += (weights[j] / total) * vals[j][i];
  }
  return out;
}
