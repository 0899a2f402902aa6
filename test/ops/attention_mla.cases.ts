import { KV_FORMATS, type KvFormat } from "../../gpu-node/kv/format.ts";
import { BF16_FACTORS, normal, type OpCase, type OpCases, type OracleInput } from "./harness.ts";
import { attend, F32_SOFTMAX, forEachToken, poolArgs, type RowSpec, rowArgs, storedVectors } from "./kv.ts";

function oracle({ tensors, numbers }: OracleInput) {
  const { q, latent, out: like } = tensors;
  const [, heads, width] = q.shape;
  const lora = like.shape[2];
  const format = KV_FORMATS[numbers.format];
  const stored = storedVectors({ format, heads: 0, dim: width, pages: tensors.pool.shape[0] }, tensors);
  const scale = format === "fp8" ? numbers.scale : 1;
  const out = new Float64Array(like.data.length);
  forEachToken(tensors, (token, past, fresh) => {
    const keys = [
      ...past.map((s) => stored.slice(s * width, (s + 1) * width).map((x) => x * scale)),
      ...fresh.map((t) => latent.data.slice(t * width, (t + 1) * width)),
    ];
    const vals = keys.map((k) => k.slice(0, lora));
    for (let h = 0; h < heads; h++) {
      const at = token * heads + h;
      out.set(
        attend(q.data.slice(at * width, (at + 1) * width), keys, vals, numbers.softmax_scale),
        at * lora,
      );
    }
  });
  return { out };
}

interface Shape {
  heads: number;
  lora: number;
  rope: number;
  format: KvFormat;
  act?: "f32" | "bf16";
  pad?: number;
}

function attention(name: string, shape: Shape, rows: RowSpec[]): OpCase {
  const { heads, lora, rope, format, act = "f32", pad = 0 } = shape;
  const { tokens, pages, args } = rowArgs(rows);
  const width = lora + rope;
  return {
    name,
    args: {
      q: { dtype: act, shape: [tokens, heads, width], fill: normal(), pad },
      latent: { dtype: act, shape: [tokens, width], fill: normal(), pad: 2 * pad },
      ...poolArgs({ format, heads: 0, dim: width, pages }),
      ...args,
      out: { dtype: act, shape: [tokens, heads, lora], pad },
      softmax_scale: 1.5 * width ** -0.5,
      scale: 0.75,
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
  { past: 0, count: 21 },
  { past: 128, count: 1 },
];

/** Of the widths that have a kernel of their own on a GPU: heads around its groups, drafts, lengths around a page. */
function decodeCases(): OpCase[] {
  const deepseek = { lora: 512, rope: 64, act: "bf16" as const };
  const decode = (past: number[], count = 1): RowSpec[] => past.map((n) => ({ past: n, count }));
  return [
    attention("decode, fp8, 1 head", { ...deepseek, heads: 1, format: "fp8" }, decode([0, 1, 63, 64, 65])),
    attention("decode, fp8, 3 heads", { ...deepseek, heads: 3, format: "fp8" }, [
      ...decode([130, 700]),
      { past: 7, count: 1, void: true },
      ...decode([62]),
    ]),
    attention(
      "decode, fp8-token, 8 heads",
      { ...deepseek, heads: 8, format: "fp8-token" },
      decode([700, 63, 1]),
    ),
    attention("decode, fp8, 16 heads", { ...deepseek, heads: 16, format: "fp8" }, decode([130, 65, 0])),
    attention(
      "decode, bf16 cache, 16 heads",
      { ...deepseek, heads: 16, format: "bf16" },
      decode([97, 64, 0, 31]),
    ),
    attention("drafts, bf16 cache, 3 heads", { ...deepseek, heads: 3, format: "bf16" }, decode([32, 130], 3)),
    {
      ...attention("drafts, fp8-token, 20 heads", { ...deepseek, heads: 20, format: "fp8-token" }, [
        { past: 64, count: 2 },
        { past: 129, count: 1 },
      ]),
      // Scores of twice the size, and many of them: the CPU's bf16 weights are seen to miss 1e-2.
      tolerance: { abs: 2e-2, rel: 1e-2 },
    },
    attention("drafts of 8, fp8, 8 heads", { ...deepseek, heads: 8, format: "fp8" }, decode([70], 8)),
    attention("decode, bf16 cache, 20 heads", { ...deepseek, heads: 20, format: "bf16" }, decode([66])),
    attention("decode, bf16 cache, 40 heads", { ...deepseek, heads: 40, format: "bf16" }, decode([33])),
    attention("decode, fp8, 70 heads", { ...deepseek, heads: 70, format: "fp8" }, decode([66])),
    attention("decode, fp8, no row is live", { ...deepseek, heads: 2, format: "fp8" }, [
      { past: 3, count: 1, void: true },
      { past: 0, count: 2, void: true },
    ]),
    attention("drafts of 5 beside a longer chunk, fp8", { ...deepseek, heads: 3, format: "fp8" }, [
      { past: 64, count: 5 },
      { past: 0, count: 40 },
      { past: 3, count: 1 },
    ]),
  ];
}

const cases = [
  attention("a few tokens", { heads: 2, lora: 64, rope: 16, format: "f32" }, [
    { past: 63, count: 2 },
    { past: 0, count: 3 },
    { past: 70, count: 1 },
  ]),
  attention("f32, rows of every kind", { heads: 4, lora: 128, rope: 64, format: "f32" }, MIXED),
  attention("bf16 cache, strided views", { heads: 3, lora: 64, rope: 24, format: "bf16", pad: 8 }, MIXED),
  attention("fp8 with a static scale", { heads: 4, lora: 64, rope: 64, format: "fp8" }, MIXED),
  attention("fp8-token", { heads: 5, lora: 192, rope: 16, format: "fp8-token" }, MIXED),
  attention("bf16 activations", { heads: 4, lora: 128, rope: 64, format: "bf16", act: "bf16" }, MIXED),
  attention("bf16 activations, fp8", { heads: 4, lora: 64, rope: 32, format: "fp8", act: "bf16" }, MIXED),
  attention("512 and 64, as DeepSeek", { heads: 4, lora: 512, rope: 64, format: "fp8", act: "bf16" }, [
    { past: 40, count: 1 },
    { past: 0, count: 9 },
  ]),
  attention("several splits", { heads: 4, lora: 64, rope: 16, format: "f32" }, [
    { past: 255, count: 1 },
    { past: 256, count: 1 },
    { past: 700, count: 3 },
  ]),
  attention("longer splits", { heads: 1, lora: 64, rope: 0, format: "f32" }, [{ past: 4500, count: 1 }]),
  attention("128 heads", { heads: 128, lora: 64, rope: 16, format: "f32" }, [{ past: 30, count: 2 }]),
  attention("65 heads over a prefix", { heads: 65, lora: 64, rope: 16, format: "f32" }, [
    { past: 65, count: 4 },
  ]),
  ...decodeCases(),
  attention("no rows", { heads: 2, lora: 64, rope: 16, format: "f32" }, []),
];

/** The same with one arithmetic for any number of queries. */
const deterministic = ({ name, args, ...rest }: OpCase): OpCase => ({
  ...rest,
  name: `${name}, deterministic`,
  args: { ...args, deterministic: 1 },
});

const i32 = (shape: number[], list: number[]) => ({ dtype: "i32" as const, shape, fill: () => list });

export default {
  op: "attention_mla",
  oracle,
  cases: [...cases, ...cases.map(deterministic)],
  bad: [
    {
      name: "a latent of another width",
      args: { latent: { dtype: "f32", shape: [6, 64] } },
      error: /^latent: must be f32\[6, 80\]/,
    },
    {
      name: "kv_lora not a multiple of 64",
      args: { out: { dtype: "f32", shape: [6, 2, 72] } },
      error: /^out: kv_lora/,
    },
    { name: "the scales missing", args: { format: 3 }, error: /^pool: must be|^scales: is needed/ },
    { name: "a negative scale", args: { scale: -1 }, error: /^scale: must be positive/ },
    {
      name: "a page out of range",
      args: { page_table: { dtype: "i32", shape: [3, 2], fill: () => new Array(6).fill(-1) } },
      error: /row 0: page -1/,
      cuda: /^index out of range: -1$/,
    },
    {
      name: "a slot out of range",
      args: { row_slot: i32([3], [-1, 1, 0]) },
      error: /row 0: slot -1/,
      cuda: /^index out of range: -1$/,
    },
  ],
} satisfies OpCases;
