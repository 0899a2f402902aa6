// D20: a row gets the same bits alone, in any batch and with any number of threads.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { DeviceOptions, DType, Tensor } from "../../gpu-node/native/addon.ts";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";
import { BYTES, toBytes } from "./formats.ts";
import { availableIsas, hasCuda, ints, normal, uniform } from "./harness.ts";
import { type Fill, fillValues, Random } from "./random.ts";

const TOKENS = 77; // more than a block of rows, and not a multiple of a tile
const WIDTH = 160;
const CUDA_WIDTH = 544; // enough for kernels that cut K
const N = 52;
const EXPERTS = 5;
const SLOTS = 3;
const GROUP = 32;
const BLOCK = 64;

type Act = "f32" | "bf16";
type Args = Record<string, Tensor | number | null>;

interface Variant {
  name: string;
  options: DeviceOptions;
  width: number;
  /** Tokens of the calls that are compared with the whole batch. */
  sizes: number[];
}

const variants: Variant[] = availableIsas().map((isa) => ({
  name: isa,
  options: { backend: "cpu", isa },
  width: WIDTH,
  sizes: [1, 2, 3, 7, 64],
}));
if (hasCuda())
  variants.push({ name: "cuda", options: { backend: "cuda" }, width: CUDA_WIDTH, sizes: [5, 12, 31, 64] });

/** Per-token arguments and their shape behind the token dimension; whole arguments; the result. */
interface Call {
  op: string;
  rows: Record<string, { dtype: DType; shape: number[]; fill: Fill }>;
  shared: Record<string, { dtype: DType; shape: number[]; fill: Fill } | number | null>;
  out: number[];
}

const codes = { dtype: "u8" as const, fill: ints(0, 256) };
const e4m3 = { dtype: "e4m3" as const, fill: normal(30) };
const scales = { dtype: "f32" as const, fill: uniform(0.001, 0.02) };
const dense = { dtype: "bf16" as const, fill: normal(0.1) };
const up = (n: number, step: number) => Math.ceil(n / step);

function calls(act: Act, width: number): Call[] {
  const x = { x: { dtype: act, shape: [width], fill: normal() } };
  const ids = { dtype: "i32" as const, shape: [SLOTS], fill: ints(-1, EXPERTS) };
  const slots = { x: { dtype: act, shape: [SLOTS, width], fill: normal() }, ids };
  const weights = { dtype: "f32" as const, shape: [SLOTS], fill: uniform(0, 1) };
  const blocks = { block_n: BLOCK, block_k: BLOCK };
  const fp8Scale = { ...scales, shape: [EXPERTS, up(N, BLOCK), up(width, BLOCK)] };
  const int4Scale = { ...scales, shape: [EXPERTS, N, width / GROUP] };
  const fp8 = { ...e4m3, shape: [EXPERTS, N, width] };
  const int4 = { ...codes, shape: [EXPERTS, N, width / 2] };
  const bf16 = { ...dense, shape: [EXPERTS, N, width] };
  return [
    { op: "linear", rows: x, shared: { w: { ...dense, shape: [N, width] }, bias: null }, out: [N] },
    {
      op: "linear_fp8",
      rows: x,
      shared: {
        w: { ...e4m3, shape: [N, width] },
        scale: { ...scales, shape: [up(N, BLOCK), up(width, BLOCK)] },
        bias: null,
        ...blocks,
      },
      out: [N],
    },
    {
      op: "linear_int4",
      rows: x,
      shared: {
        w: { ...codes, shape: [N, width / 2] },
        scale: { ...scales, shape: [N, width / GROUP] },
        zero: null,
        bias: null,
        group: GROUP,
      },
      out: [N],
    },
    {
      op: "head_linear",
      rows: { x: { dtype: act, shape: [EXPERTS, width], fill: normal() } },
      shared: { w: bf16 },
      out: [EXPERTS, N],
    },
    { op: "moe_gate_up", rows: { ...x, ids }, shared: { gate: bf16, up: bf16 }, out: [SLOTS, N] },
    {
      op: "moe_gate_up_fp8",
      rows: { ...x, ids },
      shared: { gate: fp8, gate_scale: fp8Scale, up: fp8, up_scale: fp8Scale, ...blocks },
      out: [SLOTS, N],
    },
    {
      op: "moe_gate_up_int4",
      rows: { ...x, ids },
      shared: {
        gate: int4,
        gate_scale: int4Scale,
        gate_zero: null,
        up: int4,
        up_scale: int4Scale,
        up_zero: null,
        group: GROUP,
      },
      out: [SLOTS, N],
    },
    { op: "moe_down", rows: { ...slots, weights }, shared: { down: bf16 }, out: [N] },
    {
      op: "moe_down_fp8",
      rows: { ...slots, weights },
      shared: { down: fp8, down_scale: fp8Scale, ...blocks },
      out: [N],
    },
    {
      op: "moe_down_int4",
      rows: { ...slots, weights },
      shared: { down: int4, down_scale: int4Scale, down_zero: null, group: GROUP },
      out: [N],
    },
  ];
}

const product = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

/** Runs the call on tokens [begin, end) and returns the bytes of each token's result. */
function run(
  device: OpDevice,
  call: Call,
  act: Act,
  data: Map<string, Uint8Array>,
  begin: number,
  end: number,
): string[] {
  const args: Args = {};
  for (const [name, spec] of Object.entries(call.rows)) {
    const stride = product(spec.shape) * BYTES[spec.dtype];
    const bytes = (data.get(name) as Uint8Array).slice(begin * stride, end * stride);
    args[name] = device.fromHost(spec.dtype, [end - begin, ...spec.shape], bytes);
  }
  for (const [name, spec] of Object.entries(call.shared)) {
    const tensor = spec !== null && typeof spec === "object";
    args[name] = tensor ? device.fromHost(spec.dtype, spec.shape, data.get(name) as Uint8Array) : spec;
  }
  const out = device.alloc(act, [end - begin, ...call.out]);
  args.out = out;
  (device.ops as unknown as Record<string, (args: Args) => void>)[call.op](args);
  const result = Buffer.from(device.read(out));
  const stride = product(call.out) * BYTES[act];
  return Array.from({ length: end - begin }, (_, i) => result.toString("hex", i * stride, (i + 1) * stride));
}

function check(call: Call, act: Act, variant: Variant, seed: number): void {
  const random = new Random(seed);
  const data = new Map<string, Uint8Array>();
  for (const [name, spec] of Object.entries(call.rows))
    data.set(
      name,
      toBytes(spec.dtype, fillValues(spec.fill, TOKENS * product(spec.shape), spec.dtype, random)),
    );
  for (const [name, spec] of Object.entries(call.shared))
    if (spec !== null && typeof spec === "object")
      data.set(name, toBytes(spec.dtype, fillValues(spec.fill, product(spec.shape), spec.dtype, random)));

  const one = openDevice({ ...variant.options, threads: 1 });
  const three = openDevice({ ...variant.options, threads: 3 });
  try {
    const whole = run(three, call, act, data, 0, TOKENS);
    for (const size of variant.sizes) {
      for (let begin = 0; begin < TOKENS; begin += size) {
        const end = Math.min(begin + size, TOKENS);
        const part = run(one, call, act, data, begin, end);
        assert.deepEqual(
          part,
          whole.slice(begin, end),
          `tokens ${begin} to ${end} of ${TOKENS}, seed ${seed}`,
        );
      }
    }
  } finally {
    one.dispose();
    three.dispose();
  }
}

const seed = Number(process.env.EDGEWISE_SEED ?? Math.floor(Math.random() * 2 ** 31));
for (const variant of variants) {
  for (const act of ["f32", "bf16"] as const) {
    for (const call of calls(act, variant.width)) {
      test(`${call.op}: a row's bits do not depend on its batch or on threads (${variant.name}, ${act})`, () => {
        check(call, act, variant, seed);
      });
    }
  }
}
