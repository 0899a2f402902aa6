import { normal, type OpCase, type OpCases, uniform, values } from "./harness.ts";
import { routed } from "./moe_gate_up.cases.ts";
import { BF16_SUMS, downOracle, rows, SUMS } from "./weights.ts";

function experts(
  [t, k, e]: [number, number, number],
  [n, width]: [number, number],
  x: "f32" | "bf16",
  w: "f32" | "bf16" | "f16",
  out: "f32" | "bf16",
  pad = 3,
): OpCase {
  return {
    name: `${t} tokens x ${k} of ${e}, ${width} -> ${n}, ${x} x ${w} -> ${out}, ${pad} between rows`,
    args: {
      x: rows(x, [t, k, width], pad),
      ids: { dtype: "i32", shape: [t, k], fill: routed(e) },
      weights: { dtype: "f32", shape: [t, k], fill: uniform(0, 1) },
      down: { dtype: w, shape: [e, n, width], fill: normal(0.1) },
      out: { dtype: out, shape: [t, n], pad: t % 2 },
    },
    tolerance: out === "f32" ? SUMS : BF16_SUMS,
  };
}

export default {
  op: "moe_down",
  oracle: downOracle,
  cases: [
    experts([3, 2, 4], [6, 40], "f32", "f32", "f32"),
    experts([1, 4, 24], [64, 32], "bf16", "bf16", "bf16"),
    experts([21, 4, 6], [70, 96], "bf16", "bf16", "f32"),
    experts([10, 3, 5], [33, 33], "bf16", "f16", "bf16"),
    experts([2, 4, 24], [72, 544], "bf16", "bf16", "bf16", 8),
    experts([41, 3, 3], [20, 96], "bf16", "bf16", "f32", 0),
    experts([90, 2, 2], [12, 64], "f32", "bf16", "bf16"),
    { ...experts([4500, 2, 2], [3, 2], "f32", "f32", "f32"), name: "more pairs than are held at a time" },
    experts([0, 2, 2], [12, 64], "bf16", "bf16", "bf16"),
    {
      name: "no expert at all gives zeros",
      args: {
        ...experts([4, 2, 3], [5, 8], "f32", "f32", "f32").args,
        ids: { dtype: "i32", shape: [4, 2], fill: values(new Array(8).fill(-1)) },
      },
    },
  ],
  bad: [
    {
      name: "an expert beyond the last",
      args: { ids: { dtype: "i32", shape: [3, 2], fill: values([0, 1, 2, 3, -1, 99]) } },
      error: /^ids: expert 99 at \[2, 1\] is out of range, there are 4$/,
      cuda: /^index out of range: 99$/,
    },
    {
      name: "slots differ",
      args: { weights: { dtype: "f32", shape: [3, 3] } },
      error: /^weights: must be f32\[3, 2\]/,
    },
  ],
} satisfies OpCases;
