import type { DType } from "../../gpu-node/native/addon.ts";
import { decodeBf16, decodeE4m3, decodeF16, roundTo } from "./formats.ts";
import { EXACT, type Fill, normal, type OpCase, type OpCases, type OracleInput, values } from "./harness.ts";

function oracle({ tensors: { x, out } }: OracleInput) {
  return { out: x.data.map((value) => roundTo(out.dtype, value)) };
}

const codes = (count: number, decode: (code: number) => number) =>
  Float64Array.from({ length: count }, (_, code) => decode(code));
const every: Partial<Record<DType, Float64Array>> = {
  bf16: codes(65536, decodeBf16),
  f16: codes(65536, decodeF16),
  e4m3: codes(256, decodeE4m3),
};

// Halfway between two neighbours, and the f32 values on either side of it: where rounding goes wrong. With the largest
// values, infinities and NaN.
function boundaries(list: Float64Array): number[] {
  const finite = [...list].filter(Number.isFinite).sort((a, b) => a - b);
  const points = [Infinity, -Infinity, Number.NaN, 0, -0, 449, 464, 480, 65504, 65520, 3.4e38];
  for (let i = 1; i < finite.length; i++) {
    const middle = (finite[i - 1] + finite[i]) / 2;
    const step = Math.max(Math.abs(middle) * 2 ** -23, 2 ** -149);
    points.push(middle, middle - step, middle + step);
  }
  return points;
}

function exhaustive(from: DType, to: DType, fill: ArrayLike<number>): OpCase {
  return {
    name: `every ${from} value to ${to}`,
    args: {
      x: { dtype: from, shape: [1, fill.length], fill: values(fill) },
      out: { dtype: to, shape: [1, fill.length] },
    },
    tolerance: EXACT,
  };
}

function random(from: DType, to: DType, shape: number[], pad: number, fill: Fill): OpCase {
  return {
    name: `${from} to ${to}, [${shape}]${pad ? ", strided" : ""}`,
    args: { x: { dtype: from, shape, fill, pad }, out: { dtype: to, shape, pad: pad && pad + 1 } },
    tolerance: EXACT,
  };
}

const edges = (dtype: DType): OpCase => {
  const points = boundaries(every[dtype] as Float64Array);
  return { ...exhaustive("f32", dtype, points), name: `f32 to ${dtype}: around every rounding boundary` };
};

const narrow = ["bf16", "f16", "e4m3"] as const;

export default {
  op: "cast",
  oracle,
  cases: [
    random("f32", "bf16", [5, 33], 0, normal()),
    random("bf16", "f32", [2, 3, 4, 9], 3, normal()),
    random("f32", "f32", [200, 100], 1, normal()),
    random("f32", "e4m3", [70, 300], 0, normal(100)),
    random("f16", "bf16", [17], 0, normal()),
    random("f32", "f16", [0, 4], 0, normal()),
    ...narrow.flatMap((from) =>
      (["f32", ...narrow] as const).map((to) => exhaustive(from, to, every[from] as Float64Array)),
    ),
    ...narrow.map(edges),
  ],
  bad: [
    {
      name: "an integer tensor",
      args: { x: { dtype: "i32", shape: [5, 33] } },
      error: /^x: must be f32\|bf16/,
    },
    { name: "bytes", args: { out: { dtype: "u8", shape: [5, 33] } }, error: /^out: must be/ },
    {
      name: "another shape",
      args: { out: { dtype: "bf16", shape: [33, 5] } },
      error: /^out: must be .*\[5, 33\]/,
    },
    { name: "another rank", args: { out: { dtype: "bf16", shape: [165] } }, error: /^out: must be/ },
  ],
} satisfies OpCases;
