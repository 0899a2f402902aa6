import { BF16, F32, normal, type OpCases, type OracleInput, uniform } from "./harness.ts";

function oracle({ tensors: { residual, x, weight }, numbers: { eps } }: OracleInput) {
  const width = residual.shape[1];
  // The residual is stored in f32, and the norm is of what is stored.
  const sum = residual.data.map((value, i) => Math.fround(value + x.data[i]));
  const out = new Float64Array(sum.length);
  for (let start = 0; start < sum.length; start += width) {
    const row = sum.subarray(start, start + width);
    const scale = 1 / Math.sqrt(row.reduce((total, v) => total + v * v, 0) / width + eps);
    for (let i = 0; i < width; i++) out[start + i] = row[i] * scale * weight.data[i];
  }
  return { residual: sum, out };
}

export default {
  op: "add_rms_norm",
  oracle,
  cases: [
    {
      name: "f32, odd width",
      args: {
        residual: { dtype: "f32", shape: [4, 97], fill: normal(3) },
        x: { dtype: "f32", shape: [4, 97], fill: normal() },
        weight: { dtype: "f32", shape: [97], fill: uniform(0.5, 2) },
        out: { dtype: "f32", shape: [4, 97] },
        eps: 1e-6,
      },
      tolerance: F32,
    },
    {
      name: "bf16, in place over x",
      args: {
        residual: { dtype: "f32", shape: [70, 256], fill: normal(3) },
        x: { dtype: "bf16", shape: [70, 256], fill: normal() },
        weight: { dtype: "bf16", shape: [256], fill: uniform(0.5, 2) },
        out: { dtype: "bf16", shape: [70, 256], same: "x" },
        eps: 1e-6,
      },
      tolerance: BF16,
    },
    {
      name: "strided x and out, f16 weight",
      args: {
        residual: { dtype: "f32", shape: [3, 4100], fill: normal(3), pad: 4 },
        x: { dtype: "bf16", shape: [3, 4100], fill: normal(), pad: 1 },
        weight: { dtype: "f16", shape: [4100], fill: uniform(0.5, 2) },
        out: { dtype: "f32", shape: [3, 4100], pad: 9 },
        eps: 1e-5,
      },
      tolerance: F32,
    },
  ],
  bad: [
    {
      name: "a bf16 residual",
      args: { residual: { dtype: "bf16", shape: [4, 97] } },
      error: /^residual: must be f32/,
    },
    { name: "x of another shape", args: { x: { dtype: "f32", shape: [4, 96] } }, error: /^x: must be/ },
    {
      name: "out over the residual",
      args: { out: { dtype: "f32", shape: [4, 97], same: "residual" } },
      error: /^residual: overlaps out$/,
    },
  ],
} satisfies OpCases;
