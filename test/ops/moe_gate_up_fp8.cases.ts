import type { OpCase, OpCases } from "./harness.ts";
import { routed } from "./moe_gate_up.cases.ts";
import { BF16_SUMS, fp8, gateUpOracle, rows, SUMS } from "./weights.ts";

function experts(
  [t, k, e]: [number, number, number],
  [n, width]: [number, number],
  x: "f32" | "bf16",
  block: number,
  pad = 3,
): OpCase {
  const gate = fp8([e, n, width], block, block);
  const up = fp8([e, n, width], block, block);
  return {
    name: `${t} tokens x ${k} of ${e}, ${width} -> ${n}, ${x}, blocks of ${block}, ${pad} between rows`,
    args: {
      x: rows(x, [t, width], pad),
      ids: { dtype: "i32", shape: [t, k], fill: routed(e) },
      gate: gate.w,
      gate_scale: gate.scale,
      up: up.w,
      up_scale: up.scale,
      out: { dtype: x, shape: [t, k, n], pad: t % 2 },
      block_n: block,
      block_k: block,
    },
    tolerance: x === "f32" ? SUMS : BF16_SUMS,
  };
}

export default {
  op: "moe_gate_up_fp8",
  oracle: gateUpOracle,
  cases: [
    experts([3, 2, 4], [6, 40], "f32", 32),
    experts([1, 4, 24], [96, 192], "bf16", 128),
    experts([21, 4, 6], [38, 160], "bf16", 64),
    experts([2, 4, 24], [72, 544], "bf16", 128, 8),
    experts([41, 3, 3], [20, 96], "bf16", 32, 0),
    experts([7, 3, 5], [20, 50], "bf16", 24),
    experts([90, 2, 2], [12, 64], "bf16", 128),
  ],
  bad: [
    {
      name: "scales without experts",
      args: { up_scale: { dtype: "f32", shape: [1, 2] } },
      error: /^up_scale: must be f32\[4, 1, 2\]/,
    },
  ],
} satisfies OpCases;
