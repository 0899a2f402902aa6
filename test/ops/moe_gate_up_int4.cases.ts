import type { OpCase, OpCases } from "./harness.ts";
import { routed } from "./moe_gate_up.cases.ts";
import { BF16_SUMS, gateUpOracle, int4, rows, SUMS } from "./weights.ts";

function experts(
  [t, k, e]: [number, number, number],
  [n, width]: [number, number],
  x: "f32" | "bf16",
  group: number,
  zero: boolean,
  pad = 3,
): OpCase {
  const gate = int4([e, n, width], group);
  const up = int4([e, n, width], group, "f32");
  return {
    name: `${t} tokens x ${k} of ${e}, ${width} -> ${n}, ${x}, groups of ${group}${zero ? ", zero points" : ""}, ${pad} between rows`,
    args: {
      x: rows(x, [t, width], pad),
      ids: { dtype: "i32", shape: [t, k], fill: routed(e) },
      gate: gate.w,
      gate_scale: gate.scale,
      gate_zero: zero ? gate.zero : null,
      up: up.w,
      up_scale: up.scale,
      up_zero: zero ? up.zero : null,
      out: { dtype: x, shape: [t, k, n], pad: t % 2 },
      group,
    },
    tolerance: x === "f32" ? SUMS : BF16_SUMS,
  };
}

export default {
  op: "moe_gate_up_int4",
  oracle: gateUpOracle,
  cases: [
    experts([3, 2, 4], [6, 64], "f32", 32, false),
    experts([1, 4, 24], [64, 256], "bf16", 32, false),
    experts([21, 4, 6], [38, 160], "bf16", 32, true),
    experts([2, 4, 24], [72, 544], "bf16", 32, false, 8),
    experts([41, 3, 3], [20, 128], "bf16", 64, true, 0),
    experts([7, 3, 5], [20, 60], "bf16", 20, true),
    experts([90, 2, 2], [12, 128], "bf16", 128, false),
  ],
  bad: [
    {
      name: "a group that does not divide K",
      args: { group: 48 },
      error: /^group: must divide K = 64, is 48$/,
    },
    {
      name: "zero points of another shape",
      args: { up_zero: { dtype: "u8", shape: [4, 6, 1] } },
      error: /^up_zero: must be u8\[4, 6, 2\]/,
    },
  ],
} satisfies OpCases;
