import { normal, type OpCase, type OpCases } from "./harness.ts";
import { BF16_SUMS, linearOracle, rows, SUMS } from "./weights.ts";

type Float = "f32" | "bf16" | "f16";

function product(
  m: number,
  n: number,
  k: number,
  x: "f32" | "bf16",
  w: Float,
  out: "f32" | "bf16",
  pad = 3,
): OpCase {
  return {
    name: `[${m}, ${k}] x [${n}, ${k}], ${x} x ${w} -> ${out}, ${pad} between rows`,
    args: {
      x: rows(x, [m, k], pad),
      w: { dtype: w, shape: [n, k], fill: normal(0.1) },
      bias: m % 2 === 0 ? { dtype: w, shape: [n], fill: normal() } : null,
      out: { dtype: out, shape: [m, n], pad: m % 3 },
    },
    tolerance: out === "f32" ? SUMS : BF16_SUMS,
  };
}

export default {
  op: "linear",
  oracle: linearOracle,
  cases: [
    product(2, 3, 32, "f32", "f32", "f32"),
    product(1, 64, 256, "bf16", "bf16", "bf16"),
    product(5, 33, 97, "bf16", "bf16", "f32"),
    product(7, 18, 64, "bf16", "f16", "bf16"),
    product(4, 20, 65, "bf16", "f32", "bf16"),
    product(3, 17, 130, "f32", "bf16", "f32"),
    product(6, 13, 48, "f32", "f16", "bf16"),
    product(1, 1, 1, "f32", "bf16", "f32"),
    product(9, 5, 3, "bf16", "bf16", "bf16"),
    product(130, 70, 192, "bf16", "bf16", "bf16"),
    product(131, 40, 576, "f32", "f32", "f32"),
    // Rows that 16-byte loads can take.
    product(1, 96, 608, "bf16", "bf16", "bf16", 8),
    product(8, 70, 1024, "bf16", "bf16", "f32", 16),
    product(17, 33, 1312, "bf16", "bf16", "bf16", 8),
    product(64, 20, 800, "bf16", "bf16", "bf16", 0),
    product(65, 20, 800, "bf16", "bf16", "f32", 0),
    product(30, 257, 32, "bf16", "bf16", "bf16", 8),
    { ...product(0, 8, 16, "bf16", "bf16", "bf16"), name: "no rows" },
  ],
  bad: [
    {
      name: "no columns",
      args: { w: { dtype: "f32", shape: [3, 0] } },
      error: /^w: must have at least one column/,
    },
    {
      name: "K differs",
      args: { x: rows("f32", [2, 31]) },
      error: /^x: must be f32\|bf16\[any, 32\], is f32\[2, 31\]$/,
    },
    { name: "rows of out differ", args: { out: { dtype: "f32", shape: [3, 3] } }, error: /^out: must be/ },
    {
      name: "a strided weight",
      args: { w: { dtype: "f32", shape: [3, 32], pad: 1 } },
      error: /^w: must be contiguous/,
    },
    {
      name: "bias of another width",
      args: { bias: { dtype: "f32", shape: [4] } },
      error: /^bias: must be .*\[3\]/,
    },
    {
      name: "codes as dense weights",
      args: { w: { dtype: "e4m3", shape: [3, 32] } },
      error: /^w: must be bf16\|f16\|f32/,
    },
  ],
} satisfies OpCases;
