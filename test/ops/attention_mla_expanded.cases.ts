import { KV_FORMATS, type KvFormat } from "../../gpu-node/kv/format.ts";
import { BF16_FACTORS, normal, type OpCase, type OpCases, type OracleInput } from "./harness.ts";
import { attend, F32_SOFTMAX, forEachToken, poolArgs, type RowSpec, rowArgs, storedVectors } from "./kv.ts";

function oracle({ tensors, numbers }: OracleInput) {
  const { q, latent, kv_up: up, out: like } = tensors;
  const [, heads, dimK] = q.shape;
  const width = latent.shape[1];
  const lora = up.shape[2];
  const dimV = like.shape[2];
  const nope = dimK - (width - lora);
  const format = KV_FORMATS[numbers.format];
  const stored = storedVectors({ format, heads: 0, dim: width, pages: tensors.pool.shape[0] }, tensors);
  const scale = format === "fp8" ? numbers.scale : 1;
  const project = (row: Float64Array, head: number) => {
    const all = Float64Array.from({ length: nope + dimV }, (_, i) => {
      let sum = 0;
      const at = (head * (nope + dimV) + i) * lora;
      for (let l = 0; l < lora; l++) sum += up.data[at + l] * row[l];
      return sum;
    });
    return { key: Float64Array.of(...all.slice(0, nope), ...row.slice(lora)), value: all.slice(nope) };
  };
  const memo = new Map<string, ReturnType<typeof project>>();
  const projected = (name: string, head: number, row: () => Float64Array) => {
    const id = `${name}/${head}`;
    let found = memo.get(id);
    if (!found) {
      found = project(row(), head);
      memo.set(id, found);
    }
    return found;
  };
  const out = new Float64Array(like.data.length);
  forEachToken(tensors, (token, past, fresh) => {
    for (let h = 0; h < heads; h++) {
      const context = [
        ...past.map((s) =>
          projected(`past ${s}`, h, () => stored.slice(s * width, (s + 1) * width).map((x) => x * scale)),
        ),
        ...fresh.map((t) => projected(`new ${t}`, h, () => latent.data.slice(t * width, (t + 1) * width))),
      ];
      const at = token * heads + h;
      const weighted = attend(
        q.data.slice(at * dimK, (at + 1) * dimK),
        context.map((c) => c.key),
        context.map((c) => c.value),
        numbers.softmax_scale,
      );
      out.set(weighted, at * dimV);
    }
  });
  return { out };
}

interface Shape {
  heads: number;
  lora: number;
  rope: number;
  nope: number;
  v: number;
  format: KvFormat;
  act?: "f32" | "bf16";
  weight?: "f32" | "bf16" | "f16";
  pad?: number;
}

function attention(name: string, shape: Shape, rows: RowSpec[]): OpCase {
  const { heads, lora, rope, nope, v, format, act = "f32", weight = "bf16", pad = 0 } = shape;
  const { tokens, pages, args } = rowArgs(rows);
  const width = lora + rope;
  return {
    name,
    args: {
      q: { dtype: act, shape: [tokens, heads, nope + rope], fill: normal(), pad },
      latent: { dtype: act, shape: [tokens, width], fill: normal(), pad: 2 * pad },
      kv_up: { dtype: weight, shape: [heads, nope + v, lora], fill: normal(lora ** -0.5) },
      ...poolArgs({ format, heads: 0, dim: width, pages }),
      ...args,
      out: { dtype: act, shape: [tokens, heads, v], pad },
      softmax_scale: (nope + rope) ** -0.5,
      scale: 0.75,
    },
    tolerance: act === "f32" ? F32_SOFTMAX : BF16_FACTORS,
  };
}

const FEW: RowSpec[] = [
  { past: 63, count: 2 },
  { past: 0, count: 3 },
  { past: 70, count: 1 },
];

// Some rows absorb the projection, others expand the context.
const MIXED: RowSpec[] = [
  { past: 0, count: 1 },
  { past: 63, count: 2 },
  { past: 5, count: 3, void: true },
  { past: 30, count: 60 },
  { past: 0, count: 100 },
  { past: 128, count: 1 },
];

const SMALL = { heads: 2, lora: 64, rope: 16, nope: 16, v: 8 };

const cases = [
  attention("a few tokens", { ...SMALL, format: "f32" }, FEW),
  attention("f32, rows of every kind", { ...SMALL, format: "f32", weight: "f32" }, MIXED),
  attention("bf16 cache, strided views", { ...SMALL, heads: 3, v: 24, format: "bf16", pad: 8 }, MIXED),
  attention("fp8, f16 weights", { ...SMALL, nope: 40, format: "fp8", weight: "f16" }, MIXED),
  attention("fp8-token", { ...SMALL, rope: 24, nope: 8, format: "fp8-token" }, MIXED),
  attention("bf16 activations", { ...SMALL, lora: 128, format: "bf16", act: "bf16" }, MIXED),
  attention("bf16 activations, fp8", { ...SMALL, rope: 64, format: "fp8", act: "bf16" }, MIXED),
  attention("no rope dims", { ...SMALL, rope: 0, format: "f32" }, MIXED),
  attention(
    "512 and 64, 128 and 128, as DeepSeek",
    {
      heads: 1,
      lora: 512,
      rope: 64,
      nope: 128,
      v: 128,
      format: "fp8",
      act: "bf16",
    },
    [
      { past: 20, count: 50 },
      { past: 40, count: 1 },
    ],
  ),
  attention("several chunks of context", { ...SMALL, heads: 1, format: "f32" }, [{ past: 250, count: 300 }]),
  attention("33 heads", { ...SMALL, heads: 33, format: "f32" }, [{ past: 0, count: 50 }]),
  attention("no rows", { ...SMALL, format: "f32" }, []),
];

export default {
  op: "attention_mla_expanded",
  oracle,
  cases,
  bad: [
    {
      name: "a projection of other dims",
      args: { kv_up: { dtype: "bf16", shape: [2, 32, 64] } },
      error: /^kv_up: must have nope \+ v = 24 rows/,
    },
    {
      name: "heads differ",
      args: { kv_up: { dtype: "bf16", shape: [3, 24, 64] } },
      error: /^kv_up: must be bf16\|f16\|f32\[2, any, any\]/,
    },
    {
      name: "a latent narrower than kv_lora",
      args: { latent: { dtype: "f32", shape: [6, 32] } },
      error: /^latent: rope dims/,
    },
    {
      name: "a page out of range",
      args: { page_table: { dtype: "i32", shape: [3, 2], fill: () => new Array(6).fill(99) } },
      error: /row 0: page 99/,
      cuda: /index out of range: 99/,
    },
  ],
} satisfies OpCases;
