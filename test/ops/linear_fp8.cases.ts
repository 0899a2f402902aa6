import { decodeE4m3 } from "./formats.ts";
import { EXACT, normal, type OpCase, type OpCases, values } from "./harness.ts";
import { BF16_SUMS, fp8, identity, linearOracle, rows, SUMS } from "./weights.ts";

function product(
  m: number,
  n: number,
  k: number,
  x: "f32" | "bf16",
  out: "f32" | "bf16",
  block = 128,
  pad = 5,
): OpCase {
  return {
    name: `[${m}, ${k}] x [${n}, ${k}], blocks of ${block}, ${x} -> ${out}, ${pad} between rows`,
    args: {
      x: rows(x, [m, k], pad),
      ...fp8([n, k], block, block),
      bias: m % 2 === 0 ? { dtype: "bf16", shape: [n], fill: normal() } : null,
      out: { dtype: out, shape: [m, n], pad: m % 3 },
      block_n: block,
      block_k: block,
    },
    tolerance: out === "f32" ? SUMS : BF16_SUMS,
  };
}

// Every finite code once: 254 columns, an odd width for every kernel.
const finite = Array.from({ length: 256 }, (_, code) => code).filter((code) => (code & 0x7f) !== 0x7f);
const finiteAndZeros = [...finite, 0, 0];

function allCodes(x: "f32" | "bf16", scale: number, codes = finite): OpCase {
  return {
    name: `all finite codes in ${codes.length} columns, ${x}, scale ${scale}`,
    args: {
      x: identity(x, codes.length),
      w: { dtype: "e4m3", shape: [1, codes.length], fill: values(codes.map(decodeE4m3)) },
      scale: { dtype: "f32", shape: [1, 1], fill: values([scale]) },
      bias: null,
      out: { dtype: "f32", shape: [codes.length, 1] },
      block_n: 128,
      block_k: 256,
    },
    tolerance: EXACT,
  };
}

function nanCode(x: "f32" | "bf16"): OpCase {
  const row = Array.from({ length: 64 }, (_, k) => (k === 41 ? Number.NaN : 1));
  const one = new Array(64).fill(1);
  return {
    name: `a NaN code makes its own column NaN, ${x}`,
    args: {
      x: rows(x, [5, 64]),
      w: { dtype: "e4m3", shape: [3, 64], fill: values([...one, ...row, ...one]) },
      scale: { dtype: "f32", shape: [1, 1], fill: values([1]) },
      bias: null,
      out: { dtype: "f32", shape: [5, 3] },
      block_n: 128,
      block_k: 128,
    },
    tolerance: SUMS,
  };
}

export default {
  op: "linear_fp8",
  oracle: linearOracle,
  cases: [
    product(3, 10, 160, "f32", "f32"),
    product(1, 96, 96, "bf16", "bf16"),
    product(2, 192, 192, "bf16", "f32"),
    product(5, 576, 256, "bf16", "bf16"),
    product(17, 130, 576, "bf16", "bf16"),
    product(4, 33, 200, "bf16", "f32"),
    product(6, 33, 200, "f32", "bf16", 48),
    product(7, 20, 100, "bf16", "bf16", 24),
    product(67, 140, 320, "bf16", "bf16", 64),
    // Rows that 16-byte loads can take.
    product(1, 96, 1152, "bf16", "bf16", 128, 8),
    product(8, 200, 1056, "bf16", "f32", 128, 16),
    product(17, 20, 640, "bf16", "bf16", 32, 8),
    product(66, 33, 800, "bf16", "bf16", 64, 0),
    product(3, 33, 160, "bf16", "bf16", 4096, 8),
    allCodes("f32", 1),
    allCodes("bf16", 1),
    allCodes("f32", 0.0371),
    allCodes("bf16", 0.0371),
    allCodes("bf16", 0.0371, finiteAndZeros),
    nanCode("f32"),
    nanCode("bf16"),
  ],
  bad: [
    {
      name: "scales of another shape",
      args: { scale: { dtype: "f32", shape: [1, 1] } },
      error: /^scale: must be f32\[1, 2\]/,
    },
    { name: "no block", args: { block_k: 0 }, error: /^block_k: must be an integer from 1/ },
    { name: "half a block", args: { block_n: 64.5 }, error: /^block_n: must be an integer/ },
    { name: "dense weights", args: { w: { dtype: "bf16", shape: [10, 160] } }, error: /^w: must be e4m3/ },
  ],
} satisfies OpCases;
