// Linear layers: x [m, k] bf16 times a matrix [n, k] in bf16, FP8 with blocks of 128 x 128, or INT4 in groups.
import type { Tensor } from "../../native/addon.ts";
import type { OpDevice } from "../../native/device.ts";
import {
  type BenchMemory,
  copiesFor,
  floatsOn,
  type KernelShape,
  moved,
  type Prepared,
  rmsError,
} from "./shape.ts";

export type Form = { kind: "bf16" } | { kind: "fp8" } | { kind: "int4"; group: number };

export interface Matrix {
  weight: Tensor;
  /** fp8: f32 per block; int4: bf16 per group; bf16: none. */
  scale: Tensor | null;
}

const BLOCK = 128;
const SCALE = 0.0078125;
const CHECKED_COLUMNS = 64;

/** Bytes of `count` weights, scales included (FP8's, one per 16,384, are left out). */
export function weightBytes(form: Form, count: number): number {
  if (form.kind === "int4") return count / 2 + (2 * count) / form.group;
  return form.kind === "fp8" ? count : 2 * count;
}

/** outer: [] or [experts]. */
export function randomMatrix(memory: BenchMemory, form: Form, outer: number[], n: number, k: number): Matrix {
  if (form.kind === "bf16") return { weight: memory.random("bf16", [...outer, n, k]), scale: null };
  if (form.kind === "fp8") {
    const blocks = [...outer, Math.ceil(n / BLOCK), Math.ceil(k / BLOCK)];
    return { weight: memory.random("e4m3", [...outer, n, k]), scale: memory.constant("f32", blocks, SCALE) };
  }
  const scale = memory.constant("bf16", [...outer, n, k / form.group], SCALE);
  return { weight: memory.random("u8", [...outer, n, k / 2]), scale };
}

/** Rows [0, rows) of a matrix, or of one expert's, on another device. */
export function movedRows(from: OpDevice, to: OpDevice, m: Matrix, rows: number, expert?: number): Matrix {
  const cut = (tensor: Tensor, count: number) => {
    const dim = tensor.shape.length - 2;
    const own = expert === undefined ? tensor : tensor.slice(0, expert, expert + 1);
    return moved(from, to, own.slice(dim, 0, Math.min(count, own.shape[dim])));
  };
  const perBlock = m.weight.dtype === "e4m3" ? Math.ceil(rows / BLOCK) : rows;
  return { weight: cut(m.weight, rows), scale: m.scale && cut(m.scale, perBlock) };
}

export interface LinearLoad {
  form: Form;
  m: number;
  n: number;
  k: number;
  targetUs?: number;
  peerUs?: number;
}

export function linearShape({ form, m, n, k, targetUs, peerUs }: LinearLoad): KernelShape {
  const name = form.kind === "int4" ? `int4 g${form.group}` : form.kind;
  return {
    group: form.kind,
    name: `linear ${name} ${n} x ${k}, ${m} tokens`,
    bytes: weightBytes(form, n * k) + 2 * m * (n + k),
    flops: 2 * m * n * k,
    targetUs,
    peerUs,
    peer: form.kind === "bf16" ? { kind: "linear", m, n, k } : undefined,
    prepare: (memory, cold) => prepare(memory, form, m, n, k, cold),
  };
}

function prepare(memory: BenchMemory, form: Form, m: number, n: number, k: number, cold: number): Prepared {
  const { device } = memory;
  const copies = copiesFor(weightBytes(form, n * k), cold);
  const matrices = Array.from({ length: copies }, () => randomMatrix(memory, form, [], n, k));
  const x = memory.random("bf16", [m, k]);
  const out = device.alloc("bf16", [m, n]);
  return {
    copies,
    call: (i) => multiply(device, form, matrices[i % copies], x, out),
    check(reference) {
      multiply(device, form, matrices[0], x, out);
      const columns = Math.min(CHECKED_COLUMNS, n);
      const rows = Math.min(4, m);
      const wanted = reference.alloc("bf16", [rows, columns]);
      const matrix = movedRows(device, reference, matrices[0], columns);
      multiply(reference, form, matrix, moved(device, reference, x.slice(0, 0, rows)), wanted);
      const got = out.slice(0, 0, rows).slice(1, 0, columns);
      return rmsError(floatsOn(device, got), floatsOn(reference, wanted));
    },
  };
}

function multiply(device: OpDevice, form: Form, { weight: w, scale }: Matrix, x: Tensor, out: Tensor): void {
  const common = { x, w, bias: null, out };
  if (scale === null) device.ops.linear(common);
  else if (form.kind === "int4") device.ops.linear_int4({ ...common, scale, zero: null, group: form.group });
  else device.ops.linear_fp8({ ...common, scale, block_n: BLOCK, block_k: BLOCK });
}
