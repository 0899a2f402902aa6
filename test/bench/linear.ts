// How fast the linear and expert ops are next to their floors. Prints, asserts nothing.
//   node test/bench/linear.ts [--threads N] [--isa portable|avx2|avx512] [--runs N]
// Every shape cycles through copies of its weights, together larger than the L2 cache, inside one captured graph.
// Floor: the larger of weight bytes / bandwidth and operations / rate, both measured here before the ops.
import { cpus } from "node:os";
import { parseArgs } from "node:util";
import { linearRate, streamBandwidth } from "../../gpu-node/bench/floors.ts";
import type { DType, Isa, Tensor } from "../../gpu-node/native/addon.ts";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";
import { BYTES } from "../ops/formats.ts";

const WORKING_SET = 24 * 2 ** 20;
const EXPERTS = 24;
const SLOTS = 4;

const { values: flags } = parseArgs({
  options: { threads: { type: "string" }, isa: { type: "string" }, runs: { type: "string", default: "7" } },
});

type Form = "bf16" | "fp8" | "int4";

interface Shape {
  name: string;
  /** Bytes of weights that one call reads, and its operations. */
  bytes: number;
  operations: number;
  /** Allocates one copy of the arguments and returns the call. */
  prepare: (device: OpDevice) => () => void;
}

// Uniform bytes: finite in every weight format once the exponents of bf16 and the NaN codes of e4m3 are masked.
function fill(device: OpDevice, dtype: DType, shape: number[]): Tensor {
  const bytes = new Uint8Array(shape.reduce((a, b) => a * b, 1) * BYTES[dtype]);
  for (let i = 0; i < bytes.length; i++) bytes[i] = (Math.random() * 256) & (dtype === "u8" ? 0xff : 0xbb);
  return device.fromHost(dtype, shape, bytes);
}

function scale(device: OpDevice, dtype: "f32" | "bf16", shape: number[]): Tensor {
  const count = shape.reduce((a, b) => a * b, 1);
  const data = dtype === "f32" ? new Float32Array(count).fill(0.01) : new Uint16Array(count).fill(0x3c24);
  return device.fromHost(dtype, shape, data);
}

/** A matrix (or one per expert) and the suffix of the op that takes it. */
function weights(device: OpDevice, form: Form, outer: number[], n: number, k: number) {
  const blocks = [...outer, Math.ceil(n / 128), Math.ceil(k / 128)];
  if (form === "fp8")
    return { w: fill(device, "e4m3", [...outer, n, k]), scale: scale(device, "f32", blocks) };
  if (form === "int4")
    return {
      w: fill(device, "u8", [...outer, n, k / 2]),
      scale: scale(device, "bf16", [...outer, n, k / 32]),
    };
  return { w: fill(device, "bf16", [...outer, n, k]), scale: null };
}

const weightBytes = (form: Form, count: number) => count * { bf16: 2, fp8: 1, int4: 0.5 + 2 / 32 }[form];
const NUMBERS = { bf16: {}, fp8: { block_n: 128, block_k: 128 }, int4: { group: 32 } };
const SUFFIX = { bf16: "", fp8: "_fp8", int4: "_int4" };

type AnyOps = Record<string, (args: Record<string, unknown>) => void>;

function linear(form: Form, m: number, n: number, k: number): Shape {
  return {
    name: `linear${SUFFIX[form]} [${m}, ${k}] x [${n}, ${k}]`,
    bytes: weightBytes(form, n * k),
    operations: 2 * m * n * k,
    prepare: (device) => {
      const { w, scale } = weights(device, form, [], n, k);
      const args = {
        x: device.alloc("bf16", [m, k]),
        w,
        out: device.alloc("bf16", [m, n]),
        ...NUMBERS[form],
      };
      const call = { ...args, scale, zero: null, bias: null };
      return () => (device.ops as unknown as AnyOps)[`linear${SUFFIX[form]}`](call);
    },
  };
}

function experts(form: Form, tokens: number, hidden: number, inner: number): Shape[] {
  const pairs = tokens * SLOTS;
  const used = Math.min(EXPERTS, pairs);
  const ids = Int32Array.from(
    { length: pairs },
    (_, i) => (Math.floor(i / SLOTS) * 7 + (i % SLOTS) * 5) % EXPERTS,
  );
  const shape = (name: string, matrices: number, prepare: Shape["prepare"]): Shape => ({
    name: `${name}${SUFFIX[form]} ${tokens} tokens x ${SLOTS} of ${EXPERTS}, ${hidden} x ${inner}`,
    bytes: weightBytes(form, used * matrices * hidden * inner),
    operations: 2 * pairs * matrices * hidden * inner,
    prepare,
  });
  const common = (device: OpDevice) => ({
    ids: device.fromHost("i32", [tokens, SLOTS], ids),
    ...NUMBERS[form],
  });
  return [
    shape("moe_gate_up", 2, (device) => {
      const gate = weights(device, form, [EXPERTS], inner, hidden);
      const up = weights(device, form, [EXPERTS], inner, hidden);
      const call = {
        ...common(device),
        x: device.alloc("bf16", [tokens, hidden]),
        gate: gate.w,
        gate_scale: gate.scale,
        up: up.w,
        up_scale: up.scale,
        out: device.alloc("bf16", [tokens, SLOTS, inner]),
      };
      return () => (device.ops as unknown as AnyOps)[`moe_gate_up${SUFFIX[form]}`](call);
    }),
    shape("moe_down", 1, (device) => {
      const down = weights(device, form, [EXPERTS], hidden, inner);
      const call = {
        ...common(device),
        x: device.alloc("bf16", [tokens, SLOTS, inner]),
        weights: device.alloc("f32", [tokens, SLOTS]),
        down: down.w,
        down_scale: down.scale,
        out: device.alloc("bf16", [tokens, hidden]),
      };
      return () => (device.ops as unknown as AnyOps)[`moe_down${SUFFIX[form]}`](call);
    }),
  ];
}

function measure(device: OpDevice, shape: Shape, runs: number): number {
  const copies = Math.min(64, Math.max(1, Math.ceil(WORKING_SET / shape.bytes)));
  const calls = Array.from({ length: copies }, () => shape.prepare(device));
  const graph = device.capture(() => {
    for (const call of calls) call();
  });
  let best = Number.POSITIVE_INFINITY;
  for (let run = 0; run <= runs; run++) {
    const started = performance.now();
    graph.replay();
    device.sync();
    if (run > 0) best = Math.min(best, performance.now() - started);
  }
  graph.dispose();
  return best / 1000 / copies;
}

const isa = flags.isa as Isa | undefined;
const device = openDevice({
  backend: "cpu",
  ...(flags.threads ? { threads: Number(flags.threads) } : {}),
  ...(isa ? { isa } : {}),
});
const runs = Number(flags.runs);
const bandwidth = streamBandwidth(device, WORKING_SET, runs);
const rate = linearRate(device, "bf16", runs);
console.log(
  `${cpus()[0].model}, ${device.isa}, ${device.threads} threads, ${new Date().toISOString().slice(0, 10)}`,
);
console.log(
  `floors: ${(bandwidth / 1e9).toFixed(1)} GB/s (add), ${(rate / 1e9).toFixed(0)} GFLOP/s (dense product)`,
);

const shapes = [1, 16, 64, 512].flatMap((m) =>
  (["bf16", "fp8", "int4"] as const).flatMap((form) => [
    linear(form, m, 576, 256),
    linear(form, m, 256, 512),
  ]),
);
shapes.push(linear("bf16", 1, 4096, 256), linear("bf16", 64, 4096, 256));
for (const form of ["fp8", "int4"] as const) {
  for (const tokens of [1, 16, 64, 512]) shapes.push(...experts(form, tokens, 256, 128));
}
for (const shape of shapes) {
  const seconds = measure(device, shape, runs);
  const floor = Math.max(shape.bytes / bandwidth, shape.operations / rate);
  const columns = [
    shape.name.padEnd(56),
    `${(seconds * 1e6).toFixed(1)} us`.padStart(11),
    `floor ${(floor * 1e6).toFixed(1)} us`.padStart(17),
    `${((100 * floor) / seconds).toFixed(0)} %`.padStart(6),
    `${(shape.bytes / seconds / 1e9).toFixed(1)} GB/s`.padStart(11),
    `${(shape.operations / seconds / 1e9).toFixed(0)} GFLOP/s`.padStart(13),
  ];
  console.log(columns.join(""));
}
device.dispose();
