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
import { test } from "node:test";
import type { Isa } from "../../gpu-node/native/addon.ts";
import { openDevice } from "../../gpu-node/native/device.ts";
import { loadAddon } from "../../gpu-node/native/load.ts";
import type { OpName } from "../../gpu-node/native/ops.ts";
import { checkBad, checkCase, type OpCases, type Variant } from "./case.ts";

export * from "./case.ts";
export { type Fill, filled, ints, normal, uniform, values } from "./random.ts";
export type { TensorCase } from "./tensors.ts";

const seed = Number(process.env.EDGEWISE_SEED ?? Math.floor(Math.random() * 2 ** 31));
const only = process.env.EDGEWISE_OPS?.split(",");

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

/** Instruction sets of the CPU backend that this machine runs; none when EDGEWISE_BACKENDS=cuda asks for CUDA alone. */
export function availableIsas(): Isa[] {
  if (process.env.EDGEWISE_BACKENDS === "cuda") return [];
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
      repeatable(() => checkCase(table, opCase, seed + i, variantsOf(table.op)));
    });
  });
  for (const bad of table.bad ?? []) {
    test(`${table.op}: refuses: ${bad.name}`, () => checkBad(table, bad, seed, variantsOf(table.op)));
  }
}

/** A failure names the seed that brings it back. */
function repeatable(body: () => void): void {
  try {
    body();
  } catch (error) {
    if (error instanceof Error) error.message += ` (EDGEWISE_SEED=${seed})`;
    throw error;
  }
}
