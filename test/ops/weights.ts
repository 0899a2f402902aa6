// Float64 oracles of the linear and expert ops, for dense, fp8-block and int4 weights.
import { type HostTensor, ints, normal, type OracleInput, type TensorCase, uniform } from "./harness.ts";

/** A weight's value at [expert, n, k]. */
type Value = (e: number, n: number, k: number) => number;

interface Matrix {
  n: number;
  k: number;
  value: Value;
}

/** The matrix (one per expert when it has three dimensions) that argument `name` describes. */
function matrix({ tensors, numbers }: OracleInput, name: string, scale: string, zero: string): Matrix {
  const w = tensors[name];
  const n = w.shape.at(-2) ?? 0;
  const width = w.shape.at(-1) ?? 0;
  const dense = (e: number, row: number, k: number) => w.data[(e * n + row) * width + k];
  if (w.dtype === "e4m3") {
    const { block_n, block_k } = numbers;
    const rows = Math.ceil(n / block_n);
    const columns = Math.ceil(width / block_k);
    const scaleAt = (e: number, row: number, k: number) =>
      tensors[scale].data[(e * rows + Math.floor(row / block_n)) * columns + Math.floor(k / block_k)];
    return { n, k: width, value: (e, row, k) => Math.fround(dense(e, row, k) * scaleAt(e, row, k)) };
  }
  if (w.dtype === "u8") {
    const groups = (width * 2) / numbers.group;
    return {
      n,
      k: width * 2,
      value: (e, row, k) => {
        const byte = dense(e, row, k >> 1);
        const code = k % 2 === 0 ? byte & 15 : byte >> 4;
        const g = (e * n + row) * groups + Math.floor(k / numbers.group);
        return Math.fround((code - (tensors[zero]?.data[g] ?? 8)) * tensors[scale].data[g]);
      },
    };
  }
  return { n, k: width, value: dense };
}

function dot(x: HostTensor, row: number, w: Matrix, e: number, n: number): number {
  let sum = 0;
  for (let k = 0; k < w.k; k++) sum += x.data[row * w.k + k] * w.value(e, n, k);
  return sum;
}

export function linearOracle(input: OracleInput) {
  const { x, bias } = input.tensors;
  const w = matrix(input, "w", "scale", "zero");
  const out = Array.from({ length: x.shape[0] * w.n }, (_, i) => {
    const n = i % w.n;
    return dot(x, Math.floor(i / w.n), w, 0, n) + (bias?.data[n] ?? 0);
  });
  return { out };
}

export function headLinearOracle(input: OracleInput) {
  const { x } = input.tensors;
  const w = matrix(input, "w", "", "");
  const heads = x.shape[1];
  const out = Array.from({ length: x.shape[0] * heads * w.n }, (_, i) => {
    const row = Math.floor(i / w.n);
    return dot(x, row, w, row % heads, i % w.n);
  });
  return { out };
}

export function gateUpOracle(input: OracleInput) {
  const { x, ids } = input.tensors;
  const gate = matrix(input, "gate", "gate_scale", "gate_zero");
  const up = matrix(input, "up", "up_scale", "up_zero");
  const k = ids.shape[1];
  const out = Array.from({ length: ids.data.length * gate.n }, (_, i) => {
    const pair = Math.floor(i / gate.n);
    const e = ids.data[pair];
    if (e < 0) return 0;
    const token = Math.floor(pair / k);
    const g = dot(x, token, gate, e, i % gate.n);
    return (g / (1 + Math.exp(-g))) * dot(x, token, up, e, i % gate.n);
  });
  return { out };
}

export function downOracle(input: OracleInput) {
  const { x, ids, weights } = input.tensors;
  const down = matrix(input, "down", "down_scale", "down_zero");
  const k = ids.shape[1];
  const out = Array.from({ length: ids.shape[0] * down.n }, (_, i) => {
    const token = Math.floor(i / down.n);
    let sum = 0;
    for (let pair = token * k; pair < (token + 1) * k; pair++) {
      if (ids.data[pair] >= 0) sum += weights.data[pair] * dot(x, pair, down, ids.data[pair], i % down.n);
    }
    return sum;
  });
  return { out };
}

type Act = "f32" | "bf16";

/** Arguments of fp8 weights [...experts, n, k]; the numbers belong to the op. */
export function fp8(shape: readonly number[], blockN: number, blockK: number) {
  const [n, k] = shape.slice(-2);
  const scales = [...shape.slice(0, -2), Math.ceil(n / blockN), Math.ceil(k / blockK)];
  const w: TensorCase = { dtype: "e4m3", shape, fill: normal(30) };
  const scale: TensorCase = { dtype: "f32", shape: scales, fill: uniform(0.0005, 0.003) };
  return { w, scale };
}

export function int4(shape: readonly number[], group: number, scaleDtype: "f32" | "bf16" | "f16" = "bf16") {
  const [n, k] = shape.slice(-2);
  const outer = shape.slice(0, -2);
  const groups = [...outer, n, k / group];
  const w: TensorCase = { dtype: "u8", shape: [...outer, n, k / 2], fill: ints(0, 256) };
  const scale: TensorCase = { dtype: scaleDtype, shape: groups, fill: uniform(0.005, 0.02) };
  const zero: TensorCase = { dtype: "u8", shape: groups, fill: ints(0, 16) };
  return { w, scale, zero };
}

/** x [m, k] as activations, rows strided. */
export function rows(dtype: Act, shape: readonly number[], pad = 0): TensorCase {
  return { dtype, shape, fill: normal(), pad };
}

/** Rows of the identity: the product is the weights themselves. */
export function identity(dtype: Act, size: number): TensorCase {
  const fill = (count: number) =>
    Float64Array.from({ length: count }, (_, i) => (Math.floor(i / size) === i % size ? 1 : 0));
  return { dtype, shape: [size, size], fill };
}

/** f32 sums of some hundred products of unit scale. */
export const SUMS = { abs: 3e-5, rel: 1e-5 };
/** The same, rounded to bf16 once. */
export const BF16_SUMS = { abs: 3e-5, rel: 1 / 250 };
