// FP8 with block scales, as DeepSeek-V3 publishes it (config: quant_method "fp8", weight_block_size [bn, bk]):
//   weight            F8_E4M3 [n, k]
//   weight_scale_inv  float   [ceil(n / bn), ceil(k / bk)]
// Despite its name the scale multiplies: w[i][j] = weight[i][j] * scale[i / bn][j / bk]. Edge blocks are cut off.
import type { StoredTensor } from "../checkpoint.ts";
import { E4M3_VALUES, floatsOf } from "../numeric.ts";
import { expectShape, isFloat, type Layout, TensorMisfit } from "./layout.ts";

export interface BlockSize {
  n: number;
  k: number;
}

/** The size that every published checkpoint uses; holds when config.json does not say. */
export const DEFAULT_BLOCK: BlockSize = { n: 128, k: 128 };

export function fp8Layout(
  stored: StoredTensor,
  scale: StoredTensor,
  n: number,
  k: number,
  block: BlockSize,
): Layout {
  expectShape(stored, [n, k]);
  const scaleShape = [Math.ceil(n / block.n), Math.ceil(k / block.k)];
  expectShape(scale, scaleShape);
  const { dtype } = scale;
  if (!isFloat(dtype)) throw new TensorMisfit(`${scale.name}: dtype ${dtype}, expected F32, BF16 or F16`);
  const toF32 = (bytes: Uint8Array) => new Uint8Array(floatsOf(dtype, bytes).buffer);
  return {
    kind: "fp8",
    n,
    k,
    weight: { stored, dtype: "e4m3", shape: [n, k], convert: null },
    scale: { stored: scale, dtype: "f32", shape: scaleShape, convert: dtype === "F32" ? null : toF32 },
    blockN: block.n,
    blockK: block.k,
  };
}

/** [n, k] float32 of e4m3 codes and block scales. */
export function dequantizeFp8(
  codes: Uint8Array,
  scales: Float32Array,
  n: number,
  k: number,
  block: BlockSize,
) {
  const out = new Float32Array(n * k);
  const blocksPerRow = Math.ceil(k / block.k);
  for (let i = 0; i < n; i++) {
    const scaleRow = Math.floor(i / block.n) * blocksPerRow;
    for (let j = 0; j < k; j++) {
      out[i * k + j] = E4M3_VALUES[codes[i * k + j]] * scales[scaleRow + Math.floor(j / block.k)];
    }
  }
  return out;
}
