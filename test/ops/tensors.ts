// Tensors of a test case on a device, with guards around them.
import assert from "node:assert/strict";
import type { Device, DType, Tensor } from "../../gpu-node/native/addon.ts";
import { BYTES, fromBytes } from "./formats.ts";
import type { PoolShape } from "./kv.ts";
import type { Fill } from "./random.ts";

export interface TensorCase {
  dtype: DType;
  shape: readonly number[];
  /** Default: all ones. */
  fill?: Fill;
  /** Elements between the rows: makes the tensor a strided view. */
  pad?: number;
  /** The very tensor of this earlier argument, which then holds this one's result. */
  same?: string;
  /** A KV pool, filled in the byte order of the reference backend: harness.ts converts it for devices with another. */
  kv?: PoolShape;
}

/** A tensor in the middle of a larger one. */
export interface Placed {
  readonly base: Tensor;
  readonly view: Tensor;
  readonly dtype: DType;
  readonly elements: number;
  /** For each element of the base: the index in the view, or -1 for a guard. */
  readonly map: Int32Array;
}

// EDGEWISE_GUARD=0 puts tensors at the very edge of their memory, for runs with an address sanitizer.
const GUARD = Number(process.env.EDGEWISE_GUARD ?? 32);
const GUARD_BYTE = 0xd7;

/**
 * `packed` holds the view's elements in row-major order.
 *   base: [ guard | row 0 | pad | row 1 | pad | ... | guard ]      the view is the rows
 */
export function place(device: Device, spec: TensorCase, packed: Uint8Array): Placed {
  const pad = spec.pad ?? 0;
  const width = spec.shape.at(-1) ?? 1;
  const size = BYTES[spec.dtype];
  const elements = packed.length / size;
  const rows = width === 0 ? 0 : elements / width;
  const total = 2 * GUARD + rows * (width + pad);
  const bytes = new Uint8Array(total * size).fill(GUARD_BYTE);
  const map = new Int32Array(total).fill(-1);
  for (let r = 0; r < rows; r++) {
    const at = GUARD + r * (width + pad);
    bytes.set(packed.subarray(r * width * size, (r + 1) * width * size), at * size);
    for (let c = 0; c < width; c++) map[at + c] = r * width + c;
  }
  const base = device.fromHost(spec.dtype, [total], bytes);
  let view = base.slice(0, GUARD, total - GUARD);
  if (spec.shape.length === 0) view = view.slice(0, 0, 1);
  view = view.reshape(spec.shape.with(-1, width === 0 ? 0 : width + pad));
  if (pad > 0) view = view.slice(spec.shape.length - 1, 0, width);
  return { base, view, dtype: spec.dtype, elements, map };
}

/** The view's values and bytes; fails when a guard was overwritten. */
export function readBack(device: Device, placed: Placed, where: string): { data: Float64Array; raw: string } {
  const bytes = new Uint8Array(device.read(placed.base));
  const size = BYTES[placed.dtype];
  const packed = new Uint8Array(placed.elements * size);
  let at = 0;
  placed.map.forEach((index, i) => {
    const element = bytes.subarray(i * size, (i + 1) * size);
    if (index >= 0) {
      packed.set(element, at);
      at += size;
    } else if (!element.every((byte) => byte === GUARD_BYTE)) {
      assert.fail(`${where}: written outside of the tensor, at element ${i} around it`);
    }
  });
  return { data: fromBytes(placed.dtype, packed.buffer), raw: Buffer.from(packed).toString("latin1") };
}
