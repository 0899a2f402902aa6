// Unquantized weights: bfloat16, float16 or float32, used as they are stored.
import type { StoredTensor } from "../checkpoint.ts";
import { expectShape, FLOAT_DTYPES, isFloat, type Layout, type Plane, TensorMisfit } from "./layout.ts";

/** A float tensor of any shape. */
export function floatPlane(stored: StoredTensor, shape: readonly number[]): Plane {
  expectShape(stored, shape);
  if (!isFloat(stored.dtype)) {
    throw new TensorMisfit(`${stored.name}: dtype ${stored.dtype}, expected one of BF16, F16, F32`);
  }
  return { stored, dtype: FLOAT_DTYPES[stored.dtype], shape: [...shape], convert: null };
}

export function denseLayout(stored: StoredTensor, n: number, k: number): Layout {
  return { kind: "dense", n, k, weight: floatPlane(stored, [n, k]) };
}
