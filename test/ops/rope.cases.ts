import { BF16, F32, type Fill, ints, normal, type OpCases, type OracleInput, values } from "./harness.ts";

function oracle({ tensors: { x, positions, inv_freq }, numbers: { interleaved, scale } }: OracleInput) {
  const [tokens, heads, width] = x.shape;
  const out = Float64Array.from(x.data);
  for (let t = 0; t < tokens; t++) {
    for (let i = 0; i < width / 2; i++) {
      const angle = Math.fround(Math.fround(positions.data[t]) * inv_freq.data[i]);
      const [c, s] = [Math.cos(angle) * scale, Math.sin(angle) * scale];
      for (let h = 0; h < heads; h++) {
        const start = (t * heads + h) * width;
        const first = start + (interleaved ? 2 * i : i);
        const second = start + (interleaved ? 2 * i + 1 : i + width / 2);
        out[first] = x.data[first] * c - x.data[second] * s;
        out[second] = x.data[second] * c + x.data[first] * s;
      }
    }
  }
  return { x: out };
}

const frequencies =
  (theta: number): Fill =>
  (count) =>
    Float64Array.from({ length: count }, (_, i) => theta ** (-i / count));

export default {
  op: "rope",
  oracle,
  cases: [
    {
      name: "halves, f32, up to a million tokens away",
      args: {
        x: { dtype: "f32", shape: [6, 3, 64], fill: normal() },
        positions: { dtype: "i32", shape: [6], fill: values([0, 1, 4095, 131072, 999_999, 1_000_000]) },
        inv_freq: { dtype: "f32", shape: [32], fill: frequencies(10_000) },
        interleaved: 0,
        scale: 1,
      },
      tolerance: F32,
    },
    {
      name: "pairs, f32, the rotary part of wider heads, scaled",
      args: {
        x: { dtype: "f32", shape: [40, 5, 64], fill: normal(), pad: 128 },
        positions: { dtype: "i32", shape: [40], fill: ints(0, 16_384) },
        inv_freq: { dtype: "f32", shape: [32], fill: frequencies(50_000) },
        interleaved: 1,
        scale: 1.2079441541679836,
      },
      tolerance: F32,
    },
    {
      name: "halves, bf16, many tokens, rotary width that fills no vector",
      args: {
        x: { dtype: "bf16", shape: [300, 2, 26], fill: normal(), pad: 6 },
        positions: { dtype: "i32", shape: [300], fill: ints(0, 1_000_000) },
        inv_freq: { dtype: "f32", shape: [13], fill: frequencies(1_000_000) },
        interleaved: 0,
        scale: 1,
      },
      tolerance: BF16,
    },
    {
      name: "pairs, bf16, one head",
      args: {
        x: { dtype: "bf16", shape: [9, 1, 64], fill: normal() },
        positions: { dtype: "i32", shape: [9], fill: ints(0, 1000) },
        inv_freq: { dtype: "f32", shape: [32], fill: frequencies(10_000) },
        interleaved: 1,
        scale: 1,
      },
      tolerance: BF16,
    },
    {
      name: "no tokens",
      args: {
        x: { dtype: "bf16", shape: [0, 1, 64] },
        positions: { dtype: "i32", shape: [0] },
        inv_freq: { dtype: "f32", shape: [32] },
        interleaved: 1,
        scale: 1,
      },
    },
  ],
  bad: [
    {
      name: "an odd width",
      args: { x: { dtype: "f32", shape: [6, 3, 63] } },
      error: /^x: must have an even last/,
    },
    { name: "two dimensions", args: { x: { dtype: "f32", shape: [6, 64] } }, error: /^x: must/ },
    {
      name: "positions missing a token",
      args: { positions: { dtype: "i32", shape: [5] } },
      error: /^positions: must/,
    },
    {
      name: "too few frequencies",
      args: { inv_freq: { dtype: "f32", shape: [31] } },
      error: /^inv_freq: must/,
    },
    {
      name: "interleaved is neither",
      args: { interleaved: 2 },
      error: /^interleaved: must be an integer from 0 to 1/,
    },
    { name: "an infinite scale", args: { scale: Infinity }, error: /^scale: must be finite$/ },
  ],
} satisfies OpCases;
