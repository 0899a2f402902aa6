import { BF16, F32, normal, type OpCases, type OracleInput, uniform, values } from "./harness.ts";

function oracle({ tensors: { gate, up } }: OracleInput) {
  return { out: gate.data.map((x, i) => (x / (1 + Math.exp(-x))) * up.data[i]) };
}

export default {
  op: "silu_mul",
  oracle,
  cases: [
    {
      name: "f32",
      args: {
        gate: { dtype: "f32", shape: [3, 41], fill: normal(3) },
        up: { dtype: "f32", shape: [3, 41], fill: normal() },
        out: { dtype: "f32", shape: [3, 41] },
      },
      tolerance: F32,
    },
    {
      name: "f32, from the steepest to the flattest",
      args: {
        gate: { dtype: "f32", shape: [40, 1000], fill: uniform(-120, 120) },
        up: { dtype: "f32", shape: [40, 1000], fill: normal() },
        out: { dtype: "f32", shape: [40, 1000] },
      },
      tolerance: F32,
    },
    {
      name: "f32, extremes",
      args: {
        gate: { dtype: "f32", shape: [1, 6], fill: values([0, -0, 3e38, -3e38, 1e-40, Number.NaN]) },
        up: { dtype: "f32", shape: [1, 6] },
        out: { dtype: "f32", shape: [1, 6] },
      },
      tolerance: F32,
    },
    {
      name: "bf16, halves of one buffer's rows, three dimensions",
      args: {
        gate: { dtype: "bf16", shape: [9, 4, 128], fill: normal(2), pad: 128 },
        up: { dtype: "bf16", shape: [9, 4, 128], fill: normal(), pad: 128 },
        out: { dtype: "bf16", shape: [9, 4, 128] },
      },
      tolerance: BF16,
    },
    {
      name: "in place over gate",
      args: {
        gate: { dtype: "bf16", shape: [5, 96], fill: normal(2) },
        up: { dtype: "bf16", shape: [5, 96], fill: normal() },
        out: { dtype: "bf16", shape: [5, 96], same: "gate" },
      },
      tolerance: BF16,
    },
  ],
  bad: [
    {
      name: "dtypes of gate and up differ",
      args: { up: { dtype: "bf16", shape: [3, 41] } },
      error: /^up: must be f32\[3, 41\], is bf16\[3, 41\]$/,
    },
    { name: "a narrower out", args: { out: { dtype: "f32", shape: [3, 40] } }, error: /^out: must be/ },
  ],
} satisfies OpCases;
