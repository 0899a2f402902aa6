import { EXACT, normal, type OpCase, type OpCases, values } from "./harness.ts";
import { BF16_SUMS, identity, int4, linearOracle, rows, SUMS } from "./weights.ts";

interface Options {
  pad?: number;
  zero?: boolean;
  scale?: "f32" | "bf16" | "f16";
}

function product(
  [m, n, k]: [number, number, number],
  group: number,
  x: "f32" | "bf16",
  { zero = false, scale = "bf16", pad = 7 }: Options = {},
): OpCase {
  const weights = int4([n, k], group, scale);
  return {
    name: `[${m}, ${k}] x [${n}, ${k}], groups of ${group}, ${x}, ${scale} scales${zero ? ", zero points" : ""}, ${pad} between rows`,
    args: {
      x: rows(x, [m, k], pad),
      ...weights,
      zero: zero ? weights.zero : null,
      bias: m % 2 === 0 ? { dtype: "f32", shape: [n], fill: normal() } : null,
      out: { dtype: x, shape: [m, n], pad: m % 3 },
      group,
    },
    tolerance: x === "f32" ? SUMS : BF16_SUMS,
  };
}

// Row z holds every code with zero point z: 16 zero points x 16 codes, even and odd positions.
function allCodes(x: "f32" | "bf16", group: number): OpCase {
  const k = 64;
  const bytes = Array.from({ length: 16 * (k / 2) }, (_, i) => {
    const even = (2 * i) % 16;
    return even + (((2 * i + 1 + Math.floor((i % 32) / 8)) % 16) << 4);
  });
  const groups = k / group;
  return {
    name: `all codes with all zero points, ${x}, groups of ${group}`,
    args: {
      x: identity(x, k),
      w: { dtype: "u8", shape: [16, k / 2], fill: values(bytes) },
      scale: { dtype: "f32", shape: [16, groups], fill: values(new Array(16 * groups).fill(0.0371)) },
      zero: {
        dtype: "u8",
        shape: [16, groups],
        fill: values(
          Array.from({ length: 16 * groups }, (_, i) => (Math.floor(i / groups) + (i % groups)) % 16),
        ),
      },
      bias: null,
      out: { dtype: "f32", shape: [k, 16] },
      group,
    },
    tolerance: EXACT,
  };
}

export default {
  op: "linear_int4",
  oracle: linearOracle,
  cases: [
    product([2, 6, 96], 32, "f32"),
    product([1, 64, 256], 32, "bf16"),
    product([4, 33, 256], 128, "bf16", { scale: "f16" }),
    product([5, 18, 160], 32, "bf16", { zero: true }),
    product([3, 18, 60], 20, "bf16", { zero: true, scale: "f32" }),
    product([6, 5, 2], 1, "bf16"),
    product([3, 9, 40], 40, "bf16"),
    product([70, 44, 192], 64, "bf16", { zero: true }),
    product([9, 40, 128], 128, "f32", { zero: true, scale: "f16" }),
    // Rows that 16-byte loads can take.
    product([1, 96, 2112], 32, "bf16", { pad: 8 }),
    product([8, 70, 1024], 128, "bf16", { pad: 16, zero: true, scale: "f16" }),
    product([17, 20, 640], 64, "bf16", { pad: 8, scale: "f32" }),
    product([66, 33, 800], 32, "bf16", { pad: 0, zero: true }),
    product([3, 33, 224], 224, "bf16", { pad: 8 }),
    allCodes("f32", 32),
    allCodes("bf16", 32),
    allCodes("bf16", 64),
    allCodes("f32", 16),
    allCodes("bf16", 16),
  ],
  bad: [
    {
      name: "a group that does not divide K",
      args: { group: 28 },
      error: /^group: must divide K = 96, is 28$/,
    },
    { name: "scales of another group", args: { group: 48 }, error: /^scale: must be bf16\|f16\|f32\[6, 2\]/ },
    {
      name: "zero points of another shape",
      args: { zero: { dtype: "u8", shape: [6, 2] } },
      error: /^zero: must be u8\[6, 3\]/,
    },
    { name: "signed codes", args: { w: { dtype: "i32", shape: [6, 48] } }, error: /^w: must be u8/ },
  ],
} satisfies OpCases;
