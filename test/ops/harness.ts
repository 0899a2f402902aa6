// One table per op, `<op>.cases.ts`, holds every backend to the same answers; ops.test.ts runs all of them.
//
//   export default {
//     op: "rms_norm",
//     // The answer in float64, from values as they are stored (already rounded to the tensor's dtype): what each
//     // `out` and `inout` argument must hold afterwards. Without an oracle the reference backend is the answer.
//     oracle: ({ tensors, numbers }) => ({ out: normalise(tensors.x, tensors.weight, numbers.eps) }),
//     cases: [{
//       name: "bf16, odd width",
//       args: {
//         x: { dtype: "bf16", shape: [3, 97], fill: normal(2), pad: 5 },   // pad: a strided view, 5 elements between rows
//         weight: { dtype: "f32", shape: [97], fill: uniform(0.5, 2) },
//         out: { dtype: "bf16", shape: [3, 97] },
//         eps: 1e-6,                                                       // numbers and null as they are
//       },
//       tolerance: { abs: 1e-2, rel: 1 / 128 },                            // |got - wanted| <= abs + rel * |wanted|
//     }],
//     // Calls that must be refused: overrides of the first case's arguments, and what the message says after "<op>: ".
//     bad: [{ name: "width differs", args: { weight: { dtype: "f32", shape: [96] } }, error: /^weight: must be/ }],
//   } satisfies OpCases;
//
// Each case runs on `reference` and on `cpu` with every instruction set of this machine, with 1 and with 3 threads, whose
// bits must agree, and on `cuda` where that can be opened (EDGEWISE_ADDON names a build that emulates it, see `npm run
// test:emulated`). Bytes around and between the rows of every tensor must survive. Fills come from a seed, which failures
// print; EDGEWISE_SEED=n repeats it, EDGEWISE_OPS=a,b runs only some ops.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { DType, Isa } from "../../gpu-node/native/addon.ts";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";
import { loadAddon } from "../../gpu-node/native/load.ts";
import { OP_TABLE, type OpName } from "../../gpu-node/native/ops.ts";
import { toBytes } from "./formats.ts";
import { poolForDevice, poolFromDevice } from "./kv.ts";
import { type Fill, fillValues, Random } from "./random.ts";
import { type Placed, place, readBack, type TensorCase } from "./tensors.ts";

export { filled, ints, normal, uniform, values } from "./random.ts";
export type { TensorCase } from "./tensors.ts";

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

const seed = Number(process.env.EDGEWISE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const only = process.env.EDGEWISE_OPS?.split(",");

interface Variant {
  name: string;
  device: OpDevice;
}

let opened: Variant[] | undefined;

/** Devices that every case runs on: the reference first. Opened once, disposed by ops.test.ts through closeDevices(). */
function variants(): Variant[] {
  opened ??= [
    { name: "reference", device: openDevice({ backend: "reference", threads: 1 }) },
    ...availableIsas().flatMap((isa) =>
      [1, 3].map((threads) => ({
        name: `cpu ${isa}, ${threads} threads`,
        device: openDevice({ backend: "cpu", isa, threads }),
      })),
    ),
    ...(hasCuda() ? [{ name: "cuda", device: openDevice({ backend: "cuda" }) }] : []),
  ];
  return opened;
}

export function hasCuda(): boolean {
  return loadAddon()
    .backends()
    .some(({ name, unavailable }) => name === "cuda" && unavailable === null);
}

/** Variants that have a kernel for `op`: CUDA ones may lack it. */
function variantsOf(op: OpName): Variant[] {
  const onCuda = loadAddon()
    .ops()
    .find(({ name }) => name === op)
    ?.backends.includes("cuda");
  return variants().filter(({ device }) => device.backend !== "cuda" || onCuda);
}

export function closeDevices(): void {
  for (const { device } of opened ?? []) device.dispose();
  opened = undefined;
}

/** Instruction sets of the CPU backend that this machine runs. */
export function availableIsas(): Isa[] {
  return (["portable", "avx2", "avx512"] as const).filter((isa) => {
    try {
      openDevice({ backend: "cpu", isa, threads: 1 }).dispose();
      return true;
    } catch {
      return false;
    }
  });
}

/** Defines one test per case and per bad call of the table. */
export function testOp(table: OpCases): void {
  if (only && !only.includes(table.op)) return;
  table.cases.forEach((opCase, i) => {
    test(`${table.op}: ${opCase.name}: all backends agree`, () => {
      checkCase(table, opCase, seed + i);
    });
  });
  for (const bad of table.bad ?? []) {
    test(`${table.op}: refuses: ${bad.name}`, () => checkBad(table, bad));
  }
}

function checkCase(table: OpCases, opCase: OpCase, caseSeed: number): void {
  const kinds: Record<string, string> = OP_TABLE[table.op];
  const isWritten = (arg: string) => kinds[arg] === "out" || kinds[arg] === "inout";
  const input = hostInput(table.op, opCase.args, caseSeed);
  let wanted = table.oracle?.(input);
  const bits = new Map<string, string>();
  for (const { name, device } of variantsOf(table.op)) {
    const where = `${table.op}: ${opCase.name}: ${name} (EDGEWISE_SEED=${seed})`;
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
    for (const [arg, values] of Object.entries(wanted)) {
      compare(got[arg], values, input.tensors[arg], opCase.tolerance ?? EXACT, `${where}: ${arg}`);
    }
  }
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

function checkBad(table: OpCases, bad: BadCase): void {
  const args = { ...table.cases[0].args, ...bad.args };
  for (const { name, device } of variantsOf(table.op)) {
    const where = `${table.op}: ${bad.name}: ${name}`;
    const input = hostInput(table.op, args, seed);
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

function compare(
  got: Float64Array,
  wanted: ArrayLike<number>,
  like: HostTensor,
  tolerance: Tolerance,
  where: string,
): void {
  assert.equal(got.length, wanted.length, `${where}: length`);
  const exact = like.dtype === "i32" || like.dtype === "u8";
  for (let i = 0; i < got.length; i++) {
    const bound = exact ? 0 : tolerance.abs + tolerance.rel * Math.abs(wanted[i]);
    const ok = Object.is(got[i], wanted[i]) || Math.abs(got[i] - wanted[i]) <= bound;
    if (!ok) {
      const index = position(i, like.shape);
      assert.fail(`${where}[${index}]: got ${got[i]}, wanted ${wanted[i]}, tolerance ${bound}`);
    }
  }
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

export type { Fill };
