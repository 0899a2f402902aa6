import { KV_FORMATS, type KvFormat } from "../../gpu-node/kv/format.ts";
import { BF16_FACTORS, normal, type OpCase, type OpCases, type OracleInput } from "./harness.ts";
import {
  attend,
  F32_SOFTMAX,
  forEachToken,
  type PoolShape,
  poolArgs,
  type RowSpec,
  rowArgs,
  storedVectors,
} from "./kv.ts";

function oracle({ tensors, numbers }: OracleInput) {
  const { q, k, v } = tensors;
  const [, heads, dim] = q.shape;
  const kvHeads = k.shape[1];
  const shape: PoolShape = {
    format: KV_FORMATS[numbers.format],
    heads: kvHeads,
    dim,
    pages: tensors.pool.shape[0],
  };
  const stored = storedVectors(shape, tensors);
  const isStatic = shape.format === "fp8";
  const from = (slot: number, vector: number) => {
    const at = (slot * 2 * kvHeads + vector) * dim;
    const scale = isStatic ? (vector < kvHeads ? numbers.k_scale : numbers.v_scale) : 1;
    return stored.slice(at, at + dim).map((x) => x * scale);
  };
  const out = new Float64Array(q.data.length);
  forEachToken(tensors, (token, past, fresh) => {
    for (let g = 0; g < kvHeads; g++) {
      const own = (t: number) => (t * kvHeads + g) * dim;
      const keys = [...past.map((s) => from(s, g)), ...fresh.map((t) => k.data.slice(own(t), own(t) + dim))];
      const vals = [
        ...past.map((s) => from(s, kvHeads + g)),
        ...fresh.map((t) => v.data.slice(own(t), own(t) + dim)),
      ];
      for (let h = (g * heads) / kvHeads; h < ((g + 1) * heads) / kvHeads; h++) {
        const at = (token * heads + h) * dim;
        out.set(attend(q.data.slice(at, at + dim), keys, vals, numbers.softmax_scale), at);
      }
    }
  });
  return { out };
}

interface Shape {
  heads: number;
  kvHeads: number;
  dim: number;
  format: KvFormat;
  act?: "f32" | "bf16";
  pad?: number;
  /** Deviation of q. */
  queries?: number;
}

function attention(name: string, shape: Shape, rows: RowSpec[]): OpCase {
  const { heads, kvHeads, dim, format, act = "f32", pad = 0, queries = 2 } = shape;
  const { tokens, pages, args } = rowArgs(rows);
  return {
    name,
    args: {
      q: { dtype: act, shape: [tokens, heads, dim], fill: normal(queries), pad },
      k: { dtype: act, shape: [tokens, kvHeads, dim], fill: normal(), pad: 3 * pad },
      v: { dtype: act, shape: [tokens, kvHeads, dim], fill: normal(), pad: 2 * pad },
      ...poolArgs({ format, heads: kvHeads, dim, pages }),
      ...args,
      out: { dtype: act, shape: [tokens, heads, dim], pad },
      softmax_scale: dim ** -0.5,
      k_scale: 0.75,
      v_scale: 1.5,
      deterministic: 0,
    },
    tolerance: act === "f32" ? F32_SOFTMAX : BF16_FACTORS,
  };
}

const MIXED: RowSpec[] = [
  { past: 0, count: 1 },
  { past: 63, count: 2 },
  { past: 5, count: 3, void: true },
  { past: 100, count: 7 },
  { past: 0, count: 70 },
  { past: 128, count: 1 },
];

const DRAFTS: RowSpec[] = [
  { past: 63, count: 1 },
  { past: 0, count: 2 },
  { past: 5, count: 1, void: true },
  { past: 65, count: 5 },
  { past: 300, count: 1 },
];

const cases = [
  attention("a few tokens", { heads: 4, kvHeads: 2, dim: 8, format: "f32" }, [
    { past: 63, count: 2 },
    { past: 0, count: 3 },
    { past: 70, count: 1 },
  ]),
  attention("f32, rows of every kind", { heads: 4, kvHeads: 2, dim: 64, format: "f32" }, MIXED),
  attention("bf16 cache, strided views", { heads: 6, kvHeads: 2, dim: 40, format: "bf16", pad: 8 }, MIXED),
  attention("fp8 with static scales", { heads: 4, kvHeads: 4, dim: 24, format: "fp8" }, MIXED),
  attention("fp8-token", { heads: 8, kvHeads: 1, dim: 32, format: "fp8-token" }, MIXED),
  attention("bf16 activations", { heads: 4, kvHeads: 2, dim: 64, format: "bf16", act: "bf16" }, MIXED),
  attention("bf16 activations, fp8", { heads: 3, kvHeads: 3, dim: 16, format: "fp8", act: "bf16" }, MIXED),
  attention("several splits", { heads: 4, kvHeads: 2, dim: 16, format: "f32" }, [
    { past: 255, count: 1 },
    { past: 256, count: 1 },
    { past: 700, count: 3 },
    { past: 511, count: 2 },
  ]),
  attention("longer splits", { heads: 1, kvHeads: 1, dim: 8, format: "f32" }, [{ past: 5000, count: 1 }]),
  attention("one head, one token", { heads: 1, kvHeads: 1, dim: 256, format: "f32" }, [
    { past: 0, count: 1 },
  ]),
  attention("128 heads of one group", { heads: 128, kvHeads: 1, dim: 16, format: "f32" }, [
    { past: 70, count: 2 },
  ]),
  attention("prefill over a prefix", { heads: 2, kvHeads: 1, dim: 16, format: "f32" }, [
    { past: 320, count: 130 },
  ]),
  attention("no rows", { heads: 2, kvHeads: 1, dim: 16, format: "f32" }, []),
];

// Every group and dim that the tensor-core kernels are made for, and every format with each of them.
const tensorCores = ([1, 3, 8, 12, 16] as const).flatMap((group, i) =>
  ([64, 128, 256] as const).map((dim, j) => {
    const format = (["bf16", "fp8", "fp8-token"] as const)[(i + j) % 3];
    return attention(
      `drafts, group of ${group}, dim ${dim}, ${format}`,
      { heads: 2 * group, kvHeads: 2, dim, format, act: "bf16", pad: 8, queries: 1 },
      DRAFTS,
    );
  }),
);

const CHUNKS: RowSpec[] = [
  { past: 63, count: 9 },
  { past: 0, count: 65 },
  { past: 9, count: 20, void: true },
  { past: 130, count: 1 },
  { past: 64, count: 70 },
];

const chunks = (
  [
    [1, 64, "fp8"],
    [3, 128, "bf16"],
    [8, 128, "fp8-token"],
    [2, 256, "fp8"],
    [2, 72, "bf16"],
    [1, 24, "fp8-token"],
  ] as const
).map(([group, dim, format]) =>
  attention(
    `chunks, group of ${group}, dim ${dim}, ${format}`,
    { heads: 2 * group, kvHeads: 2, dim, format, act: "bf16", pad: 8, queries: 1 },
    CHUNKS,
  ),
);

/** The same with one arithmetic for any number of queries. */
const deterministic = ({ name, args, ...rest }: OpCase): OpCase => ({
  ...rest,
  name: `${name}, deterministic`,
  args: { ...args, deterministic: 1 },
});

const i32 = (shape: number[], list: number[]) => ({ dtype: "i32" as const, shape, fill: () => list });

export default {
  op: "attention_gqa",
  oracle,
  cases: [...cases, ...cases.map(deterministic), ...tensorCores, ...chunks, deterministic(chunks[1])],
  bad: [
    {
      name: "heads that the kv heads do not divide",
      args: {
        k: { dtype: "f32", shape: [6, 3, 8] },
        v: { dtype: "f32", shape: [6, 3, 8] },
      },
      error: /^k: kv heads must divide/,
    },
    { name: "mixed activations", args: { k: { dtype: "bf16", shape: [6, 2, 8] } }, error: /^k: must be f32/ },
    { name: "another page size", args: { format: 1 }, error: /^pool: must be u8\[any, 4096\]/ },
    { name: "an unknown format", args: { format: 4 }, error: /^format: / },
    { name: "a scale of zero", args: { k_scale: 0 }, error: /^k_scale: must be positive/ },
    {
      name: "a row longer than the step",
      args: { row_start: i32([4], [0, 2, 5, 7]) },
      error: /row 2: row_start/,
      cuda: /index out of range: 7/,
    },
    {
      name: "descending rows",
      args: { row_start: i32([4], [0, 2, 1, 6]) },
      error: /row 1: row_start/,
      cuda: /index out of range: 1/,
    },
    {
      name: "a slot out of range",
      args: { row_slot: i32([3], [3, 1, 0]) },
      error: /row 0: slot 3/,
      cuda: /index out of range: 3/,
    },
    {
      name: "a context beyond the page table",
      args: { kv_len: i32([3], [65, 3, 999]) },
      error: /row 2: kv_len 999/,
      cuda: /index out of range: 999/,
    },
    {
      name: "fewer tokens in the context than new ones",
      args: { kv_len: i32([3], [1, 3, 71]) },
      error: /row 0: kv_len 1/,
      cuda: /index out of range: 1/,
    },
    {
      name: "a page out of range",
      args: { page_table: { dtype: "i32", shape: [3, 2], fill: () => new Array(6).fill(10_000) } },
      error: /row 0: page 10000/,
      cuda: /index out of range: 10000/,
    },
  ],
} satisfies OpCases;
