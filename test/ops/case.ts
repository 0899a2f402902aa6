// One call of an op on several devices, held to the oracle or to the reference backend: what ops.test.ts (through
// harness.ts) and the GPU smoke test (test/gpu) share. No test runner in here.
import assert from "node:assert/strict";
import type { DType } from "../../gpu-node/native/addon.ts";
import type { OpDevice } from "../../gpu-node/native/device.ts";
import { OP_TABLE, type OpName } from "../../gpu-node/native/ops.ts";
import { toBytes } from "./formats.ts";
import { poolForDevice, poolFromDevice } from "./kv.ts";
import { fillValues, Random } from "./random.ts";
import { type Placed, place, readBack, type TensorCase } from "./tensors.ts";

/** A tensor's values in row-major order, as the oracle sees them. */
export interface HostTensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
  readonly data: Float64Array;
  /** The bytes that hold `data`. */
  readonly packed: Uint8Array;
}

export interface OracleInput {
  /** Absent optional arguments are missing. */
  readonly tensors: Readonly<Record<string, HostTensor>>;
  readonly numbers: Readonly<Record<string, number>>;
}

export interface Tolerance {
  abs: number;
  rel: number;
}

export interface OpCase {
  name: string;
  args: Record<string, TensorCase | number | null>;
  /** Of f32, bf16 and f16 results; integer results are compared exactly. */
  tolerance?: Tolerance;
}

export interface BadCase {
  name: string;
  args: Record<string, TensorCase | number | null>;
  error: RegExp;
  /** What CUDA says where that is less: its kernels report a code and a value. */
  cuda?: RegExp;
}

export interface OpCases {
  op: OpName;
  oracle?: (input: OracleInput) => Record<string, ArrayLike<number>>;
  cases: OpCase[];
  bad?: BadCase[];
}

export const EXACT: Tolerance = { abs: 0, rel: 0 };
/** An f32 result with a handful of roundings. */
export const F32: Tolerance = { abs: 1e-6, rel: 2e-6 };
/** A result rounded to bf16 once. */
export const BF16: Tolerance = { abs: 1e-6, rel: 1 / 200 };
/** A result of bf16 inputs whose intermediate factors of magnitude about 1 may be rounded to bf16 as well. */
export const BF16_FACTORS: Tolerance = { abs: 1e-2, rel: 1 / 100 };

/** A device that cases run on. */
export interface Variant {
  name: string;
  device: OpDevice;
}

/**
 * Runs the case on every variant; without an oracle the first one's answer is held against the others'.
 * @returns per variant the largest share of a tolerance that an error took up: at most 1
 * @throws AssertionError naming the op, the case, the variant and the element
 */
export function checkCase(
  table: OpCases,
  opCase: OpCase,
  caseSeed: number,
  variants: Variant[],
): Record<string, number> {
  const kinds: Record<string, string> = OP_TABLE[table.op];
  const isWritten = (arg: string) => kinds[arg] === "out" || kinds[arg] === "inout";
  const input = hostInput(table.op, opCase.args, caseSeed);
  let wanted = table.oracle?.(input);
  const bits = new Map<string, string>();
  const worst: Record<string, number> = {};
  for (const { name, device } of variants) {
    const where = `${table.op}: ${opCase.name}: ${name}`;
    const placed = runOn(device, table.op, opCase.args, input);
    const got: Record<string, Float64Array> = {};
    for (const [arg, tensor] of placed) {
      const { data: stored, raw } = readBack(device, tensor, `${where}: ${arg}`);
      const data = canonicalOrder(device, opCase.args[arg], stored);
      if (isWritten(arg) || (wanted && arg in wanted)) got[arg] = data;
      else
        assert.ok(sameValues(data, input.tensors[arg].data), `${where}: ${arg} is an input and was changed`);
      const group = `${name.replace(/, \d+ threads/, "")} ${arg}`;
      assert.ok((bits.get(group) ?? raw) === raw, `${where}: ${arg} depends on the number of threads`);
      bits.set(group, raw);
    }
    wanted ??= got;
    const tolerance = opCase.tolerance ?? EXACT;
    const shares = Object.entries(wanted).map(([arg, values]) =>
      compare(got[arg], values, input.tensors[arg], tolerance, `${where}: ${arg}`),
    );
    worst[name] = Math.max(0, ...shares);
  }
  return worst;
}

function hostInput(
  op: OpName,
  args: Record<string, TensorCase | number | null>,
  caseSeed: number,
): { tensors: Record<string, HostTensor>; numbers: Record<string, number> } {
  const tensors: Record<string, HostTensor> = {};
  const numbers: Record<string, number> = {};
  const random = new Random(caseSeed);
  for (const name of Object.keys(OP_TABLE[op])) {
    const arg = args[name];
    if (typeof arg === "number") numbers[name] = arg;
    else if (arg) {
      const count = arg.shape.reduce((a, b) => a * b, 1);
      const data = fillValues(arg.fill, count, arg.dtype, random);
      tensors[name] = { dtype: arg.dtype, shape: arg.shape, data, packed: toBytes(arg.dtype, data) };
    }
  }
  return { tensors, numbers };
}

function runOn(
  device: OpDevice,
  op: OpName,
  args: Record<string, TensorCase | number | null>,
  input: OracleInput,
): Map<string, Placed> {
  const placed = new Map<string, Placed>();
  const call: Record<string, unknown> = {};
  for (const name of Object.keys(OP_TABLE[op])) {
    const arg = args[name];
    if (arg !== null && typeof arg === "object") {
      const same = arg.same ? placed.get(arg.same) : undefined;
      const tensor = same ?? place(device, arg, deviceOrder(device, arg, input.tensors[name].packed));
      if (arg.same) placed.delete(arg.same);
      placed.set(name, tensor);
      call[name] = tensor.view;
    } else call[name] = arg ?? null;
  }
  (device.ops[op] as (args: Record<string, unknown>) => void)(call);
  device.sync();
  return placed;
}

/** Bytes of a KV pool in the order of the device, from those of the reference backend; other tensors as they are. */
function deviceOrder(device: OpDevice, spec: TensorCase, packed: Uint8Array): Uint8Array {
  return spec.kv && device.backend === "cuda" ? poolForDevice(device, spec.kv, packed) : packed;
}

function canonicalOrder(
  device: OpDevice,
  spec: TensorCase | number | null,
  data: Float64Array,
): Float64Array {
  if (typeof spec !== "object" || !spec?.kv || device.backend !== "cuda") return data;
  return Float64Array.from(poolFromDevice(device, spec.kv, Uint8Array.from(data)));
}

/** The call is refused on every variant, with the message that the table wants. */
export function checkBad(table: OpCases, bad: BadCase, caseSeed: number, variants: Variant[]): void {
  const args = { ...table.cases[0].args, ...bad.args };
  for (const { name, device } of variants) {
    const where = `${table.op}: ${bad.name}: ${name}`;
    const input = hostInput(table.op, args, caseSeed);
    assert.throws(
      () => runOn(device, table.op, args, input),
      (error: Error) => {
        const [op, ...rest] = error.message.split(": ");
        assert.equal(op, table.op, `${where}: "${error.message}" names the op`);
        const wanted = (device.backend === "cuda" && bad.cuda) || bad.error;
        assert.match(rest.join(": "), wanted, where);
        return true;
      },
      where,
    );
  }
}

/** @returns the largest error / bound; 0 where the values are the same */
function compare(
  got: Float64Array,
  wanted: ArrayLike<number>,
  like: HostTensor,
  tolerance: Tolerance,
  where: string,
): number {
  assert.equal(got.length, wanted.length, `${where}: length`);
  const exact = like.dtype === "i32" || like.dtype === "u8";
  let worst = 0;
  for (let i = 0; i < got.length; i++) {
    const bound = exact ? 0 : tolerance.abs + tolerance.rel * Math.abs(wanted[i]);
    const error = Math.abs(got[i] - wanted[i]);
    if (Object.is(got[i], wanted[i]) || error === 0) continue;
    if (!(error <= bound)) {
      const index = position(i, like.shape);
      assert.fail(`${where}[${index}]: got ${got[i]}, wanted ${wanted[i]}, tolerance ${bound}`);
    }
    worst = Math.max(worst, error / bound);
  }
  return worst;
}

function sameValues(a: Float64Array, b: Float64Array): boolean {
  return a.length === b.length && a.every((value, i) => Object.is(value, b[i]));
}

function position(flat: number, shape: readonly number[]): string {
  const index: number[] = [];
  for (const n of [...shape].reverse()) {
    index.unshift(flat % n);
    flat = Math.floor(flat / n);
  }
  return index.join(", ");
}
