import { normal, type OpCase, type OpCases } from "./harness.ts";
import { BF16_SUMS, headLinearOracle, rows, SUMS } from "./weights.ts";

type Float = "f32" | "bf16" | "f16";

function product(t: number, h: number, n: number, k: number, x: "f32" | "bf16", w: Float, pad = 9): OpCase {
  return {
    name: `${t} tokens, ${h} heads, ${k} -> ${n}, ${x} x ${w}, ${pad} between heads`,
    args: {
      x: rows(x, [t, h, k], pad),
      w: { dtype: w, shape: [h, n, k], fill: normal(0.1) },
      out: { dtype: x, shape: [t, h, n], pad: 64 },
    },
    tolerance: x === "f32" ? SUMS : BF16_SUMS,
  };
}

export default {
  op: "head_linear",
  oracle: headLinearOracle,
  cases: [
    product(3, 2, 20, 24, "f32", "bf16"),
    product(1, 4, 512, 128, "bf16", "bf16"),
    product(19, 4, 128, 256, "bf16", "bf16"),
    product(2, 1, 65, 33, "bf16", "f16"),
    product(5, 7, 3, 64, "f32", "f32"),
    product(0, 4, 8, 8, "bf16", "bf16"),
    product(3, 3, 80, 64, "bf16", "bf16", 8),
    product(67, 2, 20, 576, "bf16", "bf16", 64),
  ],
  bad: [
    {
      name: "another number of heads",
      args: { x: rows("f32", [3, 3, 24]) },
      error: /^x: must be .*\[any, 2, 24\]/,
    },
    {
      name: "out of another width",
      args: { out: { dtype: "f32", shape: [3, 2, 21] } },
      error: /^out: must be/,
    },
  ],
} satisfies OpCases;
