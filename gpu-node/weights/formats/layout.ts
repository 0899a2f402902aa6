// How the weight matrix of one linear layer is stored: its planes (values, scales, zero points) and how to read them.
import type { DType } from "../../native/addon.ts";
import type { StoredTensor } from "../checkpoint.ts";

/** One tensor of a weight as the device wants it. */
export interface Plane {
  stored: StoredTensor;
  dtype: DType;
  shape: number[];
  /** Stored bytes -> device bytes; null when they are the same. */
  convert: ((bytes: Uint8Array) => Uint8Array) | null;
}

/** A matrix [n, k]: y = x w^T. */
export type Layout =
  | { kind: "dense"; n: number; k: number; weight: Plane }
  | { kind: "fp8"; n: number; k: number; weight: Plane; scale: Plane; blockN: number; blockK: number }
  | { kind: "int4"; n: number; k: number; weight: Plane; scale: Plane; zero: Plane | null; group: number };

/** Looks up a tensor of the checkpoint; null notes it as missing. */
export type Find = (name: string) => StoredTensor | null;

export const FLOAT_DTYPES = { BF16: "bf16", F16: "f16", F32: "f32" } as const;

export type FloatDType = keyof typeof FLOAT_DTYPES;

export function isFloat(dtype: string): dtype is FloatDType {
  return Object.hasOwn(FLOAT_DTYPES, dtype);
}

/** What is wrong with a tensor that was found: "name: what". */
export class TensorMisfit extends Error {}

export function expectShape(stored: StoredTensor, shape: readonly number[]): void {
  const same = stored.shape.length === shape.length && stored.shape.every((size, i) => size === shape[i]);
  if (!same) {
    throw new TensorMisfit(
      `${stored.name}: shape [${stored.shape.join(", ")}], config.json asks for [${shape.join(", ")}]`,
    );
  }
}

/** Reads a plane to the host, converted. */
export function planeBytes(plane: Plane): Uint8Array {
  const bytes = readStored(plane.stored);
  return plane.convert ? plane.convert(bytes) : bytes;
}

const READ_BYTES = 128 * 1024 * 1024;

/** All bytes of a stored tensor, however large. */
export function readStored(stored: StoredTensor): Uint8Array {
  const { file, begin, end } = stored;
  if (end - begin <= READ_BYTES) return file.read(begin, end);
  const bytes = new Uint8Array(end - begin);
  for (let at = begin; at < end; at += READ_BYTES) {
    bytes.set(file.read(at, Math.min(end, at + READ_BYTES)), at - begin);
  }
  return bytes;
}
