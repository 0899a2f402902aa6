import { KV_FORMATS, type KvFormat } from "../../gpu-node/kv/format.ts";
import { type Fill, normal, type OpCase, type OpCases, type OracleInput, values } from "./harness.ts";
import { poolAfter, poolArgs, quantize } from "./kv.ts";

function oracle({ tensors, numbers }: OracleInput) {
  const { latent, write_slots: slots, stats } = tensors;
  const dim = latent.shape[1];
  const format = KV_FORMATS[numbers.format];
  const written = [...slots.data.entries()].filter(([, slot]) => slot >= 0);
  const rows = written.map(([t]) =>
    quantize(format, latent.data.slice(t * dim, (t + 1) * dim), numbers.scale),
  );
  const pool = poolAfter(
    { format, heads: 0, dim, pages: tensors.pool.shape[0] },
    tensors,
    written.map(([, slot]) => slot),
    rows.map((row) => row.values),
    rows.map((row) => Float64Array.of(row.scale)),
  );
  return { ...pool, stats: [stats.data[0] + rows.reduce((n, row) => n + row.saturated, 0), stats.data[1]] };
}

function write(
  name: string,
  format: KvFormat,
  act: "f32" | "bf16",
  dim: number,
  fill: Fill,
  pad = 0,
): OpCase {
  const slots = [127, -1, 64, 0, 33, 65];
  return {
    name,
    args: {
      latent: { dtype: act, shape: [6, dim], fill, pad },
      ...poolArgs({ format, heads: 0, dim, pages: 2 }),
      write_slots: { dtype: "i32", shape: [6], fill: values(slots) },
      stats: { dtype: "i32", shape: [2], fill: values([0, 0]) },
      scale: 0.5,
    },
  };
}

// Zeros of both signs, infinities, the largest finite value, ties of the rounding, subnormal codes.
const EDGES = [
  0,
  -0,
  Infinity,
  -Infinity,
  3e38,
  224,
  232,
  232.1,
  -240,
  2 ** -10,
  3 * 2 ** -11,
  1.0625,
  1.1875,
];
const edges: Fill = (n) => Array.from({ length: n }, (_, i) => EDGES[i % EDGES.length]);
const zeros: Fill = (n) => new Float64Array(n);

export default {
  op: "kv_write_mla",
  oracle,
  cases: [
    write("f32", "f32", "f32", 80, normal(), 8),
    write("bf16", "bf16", "bf16", 576, normal()),
    write("fp8 of 576 values", "fp8", "bf16", 576, normal(), 64),
    write("fp8 of edge values", "fp8", "f32", 104, edges),
    write("fp8-token", "fp8-token", "f32", 576, normal(3)),
    write("fp8-token of edge values", "fp8-token", "f32", 104, edges),
    write("fp8-token of zeros", "fp8-token", "f32", 72, zeros),
    write("fp8-token of tiny values", "fp8-token", "f32", 72, normal(1e-40)),
  ],
  bad: [
    {
      name: "a NaN",
      args: {
        latent: {
          dtype: "f32",
          shape: [6, 80],
          fill: (n) => Float64Array.from({ length: n }, (_, i) => (i === 3 ? NaN : 1)),
        },
      },
      error: /1 NaN elements/,
      cuda: /^NaN in the input: 1$/,
    },
    {
      name: "a slot beyond the pool",
      args: { write_slots: { dtype: "i32", shape: [6], fill: values([0, 1, 128, 3, 4, 5]) } },
      error: /slot 128/,
      cuda: /^index out of range: 128$/,
    },
    { name: "a pool of another width", args: { latent: { dtype: "f32", shape: [6, 88] } }, error: /^pool: / },
  ],
} satisfies OpCases;
