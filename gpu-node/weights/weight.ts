// Weights on the device, as the linear and expert ops take them.
import type { Tensor } from "../native/addon.ts";

/** A stored matrix: [n, k] of one linear layer, or [experts, n, k] of all experts of a layer. */
export type Matrix =
  | { kind: "dense"; n: number; k: number; weight: Tensor }
  | { kind: "fp8"; n: number; k: number; weight: Tensor; scale: Tensor; blockN: number; blockK: number }
  | { kind: "int4"; n: number; k: number; weight: Tensor; scale: Tensor; zero: Tensor | null; group: number };

export interface Linear {
  matrix: Matrix;
  /** [n] */
  bias: Tensor | null;
}
