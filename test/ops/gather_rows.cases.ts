import { BF16, EXACT, ints, normal, type OpCases, type OracleInput, values } from "./harness.ts";

function oracle({ tensors: { x, index } }: OracleInput) {
  const width = x.shape[1];
  const rows = [...index.data].map((i) => [...x.data.subarray(i * width, (i + 1) * width)]);
  return { out: rows.flat() };
}

export default {
  op: "gather_rows",
  oracle,
  cases: [
    {
      name: "f32, repeated and reversed",
      args: {
        x: { dtype: "f32", shape: [6, 40], fill: normal(), pad: 1 },
        index: { dtype: "i32", shape: [4], fill: values([5, 0, 5, 2]) },
        out: { dtype: "f32", shape: [4, 40] },
      },
      tolerance: EXACT,
    },
    {
      name: "f32 to bf16",
      args: {
        x: { dtype: "f32", shape: [64, 129], fill: normal() },
        index: { dtype: "i32", shape: [200], fill: ints(0, 64) },
        out: { dtype: "bf16", shape: [200, 129] },
      },
      tolerance: BF16,
    },
    {
      name: "no rows",
      args: {
        x: { dtype: "bf16", shape: [6, 40] },
        index: { dtype: "i32", shape: [0] },
        out: { dtype: "bf16", shape: [0, 40] },
      },
    },
  ],
  bad: [
    {
      name: "an index beyond the rows",
      args: { index: { dtype: "i32", shape: [4], fill: values([0, 6, 1, 1]) } },
      error: /^index: 6 at \[1\] is not within \[0, 6\)$/,
      cuda: /^index out of range: 6$/,
    },
    {
      name: "out of another length",
      args: { out: { dtype: "f32", shape: [3, 40] } },
      error: /^out: must be/,
    },
  ],
} satisfies OpCases;
