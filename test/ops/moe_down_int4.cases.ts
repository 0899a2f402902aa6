import { type OpCase, type OpCases, uniform } from "./harness.ts";
import { routed } from "./moe_gate_up.cases.ts";
import { BF16_SUMS, downOracle, int4, rows, SUMS } from "./weights.ts";

function experts(
  [t, k, e]: [number, number, number],
  [n, width]: [number, number],
  x: "f32" | "bf16",
  group: number,
  zero: boolean,
  pad = 3,
): OpCase {
  const down = int4([e, n, width], group, zero ? "f16" : "bf16");
  return {
    name: `${t} tokens x ${k} of ${e}, ${width} -> ${n}, ${x}, groups of ${group}${zero ? ", zero points" : ""}, ${pad} between rows`,
    args: {
      x: rows(x, [t, k, width], pad),
      ids: { dtype: "i32", shape: [t, k], fill: routed(e) },
      weights: { dtype: "f32", shape: [t, k], fill: uniform(0, 1) },
      down: down.w,
      down_scale: down.scale,
      down_zero: zero ? down.zero : null,
      out: { dtype: x, shape: [t, n], pad: t % 2 },
      group,
    },
    tolerance: x === "f32" ? SUMS : BF16_SUMS,
  };
}

export default {
  op: "moe_down_int4",
  oracle: downOracle,
  cases: [
    experts([3, 2, 4], [6, 64], "f32", 32, false),
    experts([1, 4, 24], [256, 128], "bf16", 32, false),
    experts([21, 4, 6], [70, 160], "bf16", 32, true),
    experts([2, 4, 24], [72, 544], "bf16", 32, false, 8),
    experts([41, 3, 3], [20, 128], "bf16", 64, true, 0),
    experts([7, 3, 5], [20, 60], "bf16", 20, true),
  ],
  bad: [
    {
      name: "a group that does not divide K",
      args: { group: 48 },
      error: /^group: must divide K = 64, is 48$/,
    },
  ],
} satisfies OpCases;
