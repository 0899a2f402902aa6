import { type Fill, normal, type OpCase, type OpCases, values } from "./harness.ts";
import { BF16_SUMS, gateUpOracle, rows, SUMS } from "./weights.ts";

/** Experts per token: skewed towards the first ones, one slot in five empty. */
export const routed =
  (experts: number): Fill =>
  (count, random) =>
    Float64Array.from({ length: count }, () => {
      if (random.next() < 0.2) return -1;
      return Math.floor(experts * random.next() ** 2);
    });

function experts(
  [t, k, e]: [number, number, number],
  [n, width]: [number, number],
  x: "f32" | "bf16",
  w: "f32" | "bf16" | "f16",
  pad = 3,
): OpCase {
  return {
    name: `${t} tokens x ${k} of ${e}, ${width} -> ${n}, ${x} x ${w}, ${pad} between rows`,
    args: {
      x: rows(x, [t, width], pad),
      ids: { dtype: "i32", shape: [t, k], fill: routed(e) },
      gate: { dtype: w, shape: [e, n, width], fill: normal(0.1) },
      up: { dtype: w, shape: [e, n, width], fill: normal(0.1) },
      out: { dtype: x, shape: [t, k, n], pad: t % 2 },
    },
    tolerance: x === "f32" ? SUMS : BF16_SUMS,
  };
}

export default {
  op: "moe_gate_up",
  oracle: gateUpOracle,
  cases: [
    experts([3, 2, 4], [6, 40], "f32", "f32"),
    experts([1, 4, 24], [32, 64], "bf16", "bf16"),
    experts([21, 4, 6], [38, 96], "bf16", "bf16"),
    experts([10, 3, 5], [9, 33], "bf16", "f16"),
    experts([2, 4, 24], [72, 544], "bf16", "bf16", 8),
    experts([41, 3, 3], [20, 96], "bf16", "bf16", 0),
    experts([90, 2, 2], [12, 64], "f32", "bf16"),
    experts([0, 2, 2], [12, 64], "bf16", "bf16"),
    {
      name: "no expert at all",
      args: {
        ...experts([4, 2, 3], [5, 8], "f32", "f32").args,
        ids: { dtype: "i32", shape: [4, 2], fill: values(new Array(8).fill(-1)) },
      },
    },
  ],
  bad: [
    {
      name: "an expert beyond the last",
      args: { ids: { dtype: "i32", shape: [3, 2], fill: values([0, 1, 2, 4, -1, 0]) } },
      error: /^ids: expert 4 at \[1, 1\] is out of range, there are 4$/,
      cuda: /^index out of range: 4$/,
    },
    {
      name: "an expert below none",
      args: { ids: { dtype: "i32", shape: [3, 2], fill: values([0, 1, 2, 3, -2, 0]) } },
      error: /^ids: expert -2 at \[2, 0\]/,
      cuda: /^index out of range: -2$/,
    },
    {
      name: "up of another shape",
      args: { up: { dtype: "f32", shape: [4, 7, 40] } },
      error: /^up: must have the shape and dtype of gate/,
    },
    {
      name: "out of another dtype",
      args: { out: { dtype: "bf16", shape: [3, 2, 6] } },
      error: /^out: must be f32\[3, 2, 6\]/,
    },
  ],
} satisfies OpCases;
