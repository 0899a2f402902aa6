import { BF16, EXACT, ints, normal, type OpCases, type OracleInput, values } from "./harness.ts";

function oracle({ tensors: { ids, table } }: OracleInput) {
  const width = table.shape[1];
  const rows = [...ids.data].map((id) => [...table.data.subarray(id * width, (id + 1) * width)]);
  return { out: rows.flat() };
}

export default {
  op: "embedding",
  oracle,
  cases: [
    {
      name: "bf16 table to f32",
      args: {
        ids: { dtype: "i32", shape: [5], fill: values([0, 6, 3, 3, 1]) },
        table: { dtype: "bf16", shape: [7, 33], fill: normal() },
        out: { dtype: "f32", shape: [5, 33] },
      },
      tolerance: EXACT,
    },
    {
      name: "f16 table to bf16, many tokens",
      args: {
        ids: { dtype: "i32", shape: [300], fill: ints(0, 50) },
        table: { dtype: "f16", shape: [50, 128], fill: normal() },
        out: { dtype: "bf16", shape: [300, 128], pad: 2 },
      },
      tolerance: BF16,
    },
    {
      name: "f32 table to f32",
      args: {
        ids: { dtype: "i32", shape: [9], fill: ints(0, 4) },
        table: { dtype: "f32", shape: [4, 65], fill: normal() },
        out: { dtype: "f32", shape: [9, 65] },
      },
      tolerance: EXACT,
    },
    {
      name: "bf16 table to bf16",
      args: {
        ids: { dtype: "i32", shape: [9], fill: ints(0, 4) },
        table: { dtype: "bf16", shape: [4, 64], fill: normal() },
        out: { dtype: "bf16", shape: [9, 64] },
      },
      tolerance: EXACT,
    },
    {
      name: "no tokens",
      args: {
        ids: { dtype: "i32", shape: [0] },
        table: { dtype: "bf16", shape: [4, 64] },
        out: { dtype: "bf16", shape: [0, 64] },
      },
    },
  ],
  bad: [
    {
      name: "an id beyond the table",
      args: { ids: { dtype: "i32", shape: [5], fill: values([0, 1, 7, 1, 1]) } },
      error: /^ids: 7 at \[2\] is not within \[0, 7\)$/,
      cuda: /^index out of range: 7$/,
    },
    {
      name: "a negative id",
      args: { ids: { dtype: "i32", shape: [5], fill: values([0, 1, 1, 1, -1]) } },
      error: /^ids: -1 at \[4\]/,
      cuda: /^index out of range: -1$/,
    },
    { name: "ids of floats", args: { ids: { dtype: "f32", shape: [5] } }, error: /^ids: must be i32/ },
    {
      name: "out too narrow",
      args: { out: { dtype: "f32", shape: [5, 32] } },
      error: /^out: must be .*33\]/,
    },
    { name: "an fp8 table", args: { table: { dtype: "e4m3", shape: [7, 33] } }, error: /^table: must be/ },
  ],
} satisfies OpCases;
