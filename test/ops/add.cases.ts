import { BF16, F32, normal, type OpCases, type OracleInput } from "./harness.ts";

function oracle({ tensors: { a, b } }: OracleInput) {
  return { a: a.data.map((value, i) => value + b.data[i]) };
}

export default {
  op: "add",
  oracle,
  cases: [
    {
      name: "f32 += f32",
      args: {
        a: { dtype: "f32", shape: [3, 17], fill: normal() },
        b: { dtype: "f32", shape: [3, 17], fill: normal() },
      },
      tolerance: F32,
    },
    {
      name: "f32 += bf16, strided views",
      args: {
        a: { dtype: "f32", shape: [70, 257], fill: normal(), pad: 3 },
        b: { dtype: "bf16", shape: [70, 257], fill: normal(), pad: 7 },
      },
      tolerance: F32,
    },
    {
      name: "bf16 += f32",
      args: {
        a: { dtype: "bf16", shape: [2, 4097], fill: normal() },
        b: { dtype: "f32", shape: [2, 4097], fill: normal() },
      },
      tolerance: BF16,
    },
    {
      name: "bf16 += bf16, enough rows for several threads",
      args: {
        a: { dtype: "bf16", shape: [65, 1024], fill: normal() },
        b: { dtype: "bf16", shape: [65, 1024], fill: normal() },
      },
      tolerance: BF16,
    },
    { name: "no rows", args: { a: { dtype: "f32", shape: [0, 8] }, b: { dtype: "f32", shape: [0, 8] } } },
  ],
  bad: [
    {
      name: "an integer tensor",
      args: { a: { dtype: "i32", shape: [3, 17] } },
      error: /^a: must be f32\|bf16\[any, any\], is i32\[3, 17\]$/,
    },
    { name: "rows differ", args: { b: { dtype: "f32", shape: [2, 17] } }, error: /^b: must be .*\[3, 17\]/ },
    { name: "a number for a tensor", args: { b: 1 }, error: /^b: must be a Tensor$/ },
    { name: "a missing tensor", args: { a: null }, error: /^a: must be a Tensor$/ },
  ],
} satisfies OpCases;
