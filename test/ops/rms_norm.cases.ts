import { BF16, F32, normal, type OpCases, type OracleInput, uniform, values } from "./harness.ts";

function oracle({ tensors: { x, weight }, numbers: { eps } }: OracleInput) {
  const width = x.shape.at(-1)!;
  const out = new Float64Array(x.data.length);
  for (let start = 0; start < out.length; start += width) {
    const row = x.data.subarray(start, start + width);
    const scale = 1 / Math.sqrt(row.reduce((sum, v) => sum + v * v, 0) / width + eps);
    for (let i = 0; i < width; i++) out[start + i] = row[i] * scale * weight.data[i];
  }
  return { out };
}

export default {
  op: "rms_norm",
  oracle,
  cases: [
    {
      name: "f32, odd width",
      args: {
        x: { dtype: "f32", shape: [4, 97], fill: normal(3) },
        weight: { dtype: "f32", shape: [97], fill: uniform(0.5, 2) },
        out: { dtype: "f32", shape: [4, 97] },
        eps: 1e-6,
      },
      tolerance: F32,
    },
    {
      name: "bf16 with bf16 weight",
      args: {
        x: { dtype: "bf16", shape: [33, 256], fill: normal() },
        weight: { dtype: "bf16", shape: [256], fill: uniform(0.5, 2) },
        out: { dtype: "bf16", shape: [33, 256] },
        eps: 1e-6,
      },
      tolerance: BF16,
    },
    {
      name: "heads of a strided view, f16 weight, in place",
      args: {
        x: { dtype: "bf16", shape: [7, 4, 64], fill: normal(), pad: 32 },
        weight: { dtype: "f16", shape: [64], fill: uniform(0.5, 2) },
        out: { dtype: "bf16", shape: [7, 4, 64], pad: 32, same: "x" },
        eps: 1e-5,
      },
      tolerance: BF16,
    },
    {
      name: "f32 to bf16, wide rows",
      args: {
        x: { dtype: "f32", shape: [5, 7168], fill: normal() },
        weight: { dtype: "bf16", shape: [7168], fill: uniform(0.5, 2) },
        out: { dtype: "bf16", shape: [5, 7168] },
        eps: 1e-6,
      },
      tolerance: BF16,
    },
    {
      name: "narrower than a vector, where eps decides",
      args: {
        x: { dtype: "f32", shape: [2, 3], fill: values([1e-3, -2e-3, 0, 0, 0, 0]) },
        weight: { dtype: "f32", shape: [3] },
        out: { dtype: "f32", shape: [2, 3] },
        eps: 1e-5,
      },
      tolerance: F32,
    },
    {
      name: "no rows",
      args: {
        x: { dtype: "bf16", shape: [0, 64] },
        weight: { dtype: "bf16", shape: [64] },
        out: { dtype: "bf16", shape: [0, 64] },
        eps: 1e-6,
      },
    },
  ],
  bad: [
    {
      name: "a shorter weight",
      args: { weight: { dtype: "f32", shape: [96] } },
      error: /^weight: must be .*\[97\]/,
    },
    { name: "one dimension", args: { x: { dtype: "f32", shape: [97] } }, error: /^x: must have at least 2/ },
    { name: "a negative eps", args: { eps: -1 }, error: /^eps: must not be negative$/ },
    { name: "an eps that is not finite", args: { eps: Number.NaN }, error: /^eps: must be finite$/ },
    {
      name: "a tensor for eps",
      args: { eps: { dtype: "f32", shape: [1] } },
      error: /^eps: must be a number$/,
    },
  ],
} satisfies OpCases;
