import { type OpCase, type OpCases, uniform } from "./harness.ts";
import { routed } from "./moe_gate_up.cases.ts";
import { BF16_SUMS, downOracle, fp8, rows, SUMS } from "./weights.ts";

function experts(
  [t, k, e]: [number, number, number],
  [n, width]: [number, number],
  x: "f32" | "bf16",
  block: number,
  pad = 3,
): OpCase {
  const down = fp8([e, n, width], block, block);
  return {
    name: `${t} tokens x ${k} of ${e}, ${width} -> ${n}, ${x}, blocks of ${block}, ${pad} between rows`,
    args: {
      x: rows(x, [t, k, width], pad),
      ids: { dtype: "i32", shape: [t, k], fill: routed(e) },
      weights: { dtype: "f32", shape: [t, k], fill: uniform(0, 1) },
      down: down.w,
      down_scale: down.scale,
      out: { dtype: x, shape: [t, n], pad: t % 2 },
      block_n: block,
      block_k: block,
    },
    tolerance: x === "f32" ? SUMS : BF16_SUMS,
  };
}

export default {
  op: "moe_down_fp8",
  oracle: downOracle,
  cases: [
    experts([3, 2, 4], [6, 40], "f32", 32),
    experts([1, 4, 24], [256, 128], "bf16", 128),
    experts([21, 4, 6], [70, 160], "bf16", 64),
    experts([2, 4, 24], [72, 544], "bf16", 128, 8),
    experts([41, 3, 3], [20, 96], "bf16", 32, 0),
    experts([7, 3, 5], [20, 50], "bf16", 24),
  ],
  bad: [
    {
      name: "scales of another shape",
      args: { down_scale: { dtype: "f32", shape: [4, 1, 1] } },
      error: /^down_scale: must be f32\[4, 1, 2\]/,
    },
  ],
} satisfies OpCases;
