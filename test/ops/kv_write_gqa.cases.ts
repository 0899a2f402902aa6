import { KV_FORMATS, type KvFormat } from "../../gpu-node/kv/format.ts";
import { normal, type OpCase, type OpCases, type OracleInput, values } from "./harness.ts";
import { poolAfter, poolArgs, quantize } from "./kv.ts";

function oracle({ tensors, numbers }: OracleInput) {
  const { k, v, write_slots: slots, stats } = tensors;
  const [, heads, dim] = k.shape;
  const format = KV_FORMATS[numbers.format];
  const written: { slot: number; row: Float64Array; scales: Float64Array }[] = [];
  let saturated = stats.data[0];
  slots.data.forEach((slot, t) => {
    if (slot < 0) return;
    const vectors = [k, v].flatMap((x, half) =>
      Array.from({ length: heads }, (_, h) => {
        const at = (t * heads + h) * dim;
        return quantize(format, x.data.slice(at, at + dim), half === 0 ? numbers.k_scale : numbers.v_scale);
      }),
    );
    for (const vector of vectors) saturated += vector.saturated;
    const row = Float64Array.from(vectors.flatMap((vector) => [...vector.values]));
    written.push({ slot, row, scales: Float64Array.from(vectors, (vector) => vector.scale) });
  });
  const pool = poolAfter(
    { format, heads, dim, pages: tensors.pool.shape[0] },
    tensors,
    written.map((w) => w.slot),
    written.map((w) => w.row),
    written.map((w) => w.scales),
  );
  return { ...pool, stats: [saturated, stats.data[1]] };
}

function write(
  name: string,
  format: KvFormat,
  act: "f32" | "bf16",
  [heads, dim]: [number, number],
  { deviation = 1, pad = 0 } = {},
): OpCase {
  const slots = [64, 191, 65, -1, 130, 129, 66, 67];
  return {
    name,
    args: {
      k: { dtype: act, shape: [8, heads, dim], fill: normal(deviation), pad },
      v: { dtype: act, shape: [8, heads, dim], fill: normal(deviation), pad: 2 * pad },
      ...poolArgs({ format, heads, dim, pages: 3 }),
      write_slots: { dtype: "i32", shape: [8], fill: values(slots) },
      stats: { dtype: "i32", shape: [2], fill: values([5, 7]) },
      k_scale: 0.75,
      v_scale: 1.5,
    },
  };
}

export default {
  op: "kv_write_gqa",
  oracle,
  cases: [
    write("f32", "f32", "f32", [2, 8], { pad: 4 }),
    write("bf16", "bf16", "bf16", [3, 40]),
    write("f32 rounded to bf16", "bf16", "f32", [1, 24]),
    write("fp8 of bf16", "fp8", "bf16", [2, 64], { pad: 8 }),
    write("fp8 of f32, some beyond 448", "fp8", "f32", [2, 24], { deviation: 400 }),
    write("fp8 of small values, many subnormal codes", "fp8", "f32", [2, 64], { deviation: 0.01 }),
    write("fp8-token", "fp8-token", "f32", [2, 40], { deviation: 1e4 }),
    write("fp8-token of bf16", "fp8-token", "bf16", [1, 128]),
  ],
  bad: [
    {
      name: "a slot beyond the pool",
      args: { write_slots: { dtype: "i32", shape: [8], fill: values([64, 192, 65, -1, 1, 2, 3, 4]) } },
      error: /slot 192 lies outside of 3 pages/,
      cuda: /index out of range: 192/,
    },
    {
      name: "a slot below -1",
      args: { write_slots: { dtype: "i32", shape: [8], fill: values([64, -2, 65, -1, 1, 2, 3, 4]) } },
      error: /slot -2 lies outside/,
      cuda: /index out of range: -2/,
    },
    {
      name: "a NaN",
      args: { k: { dtype: "f32", shape: [8, 2, 8], fill: (n) => new Array(n).fill(Number.NaN) } },
      error: /112 NaN elements; their tokens were not stored/,
      cuda: /NaN in the input: 16/,
    },
    { name: "v of another shape", args: { v: { dtype: "f32", shape: [8, 2, 16] } }, error: /^v: must be/ },
    {
      name: "scales the format has not",
      args: { scales: { dtype: "f32", shape: [3, 64, 4] } },
      error: /^scales: /,
    },
  ],
} satisfies OpCases;
