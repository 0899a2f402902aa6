// Which format a linear layer is stored in. The tensors have the last word: checkpoints exist whose config.json does
// not mention that their experts are FP8.
import { floatsOf } from "../numeric.ts";
import { dequantizeInt4, int4Layout } from "./compressed-tensors.ts";
import { denseLayout } from "./dense.ts";
import { type BlockSize, dequantizeFp8, fp8Layout } from "./fp8-block.ts";
import { type Find, type FloatDType, type Layout, planeBytes, TensorMisfit } from "./layout.ts";

/** Layout of linear layer `name` [n, k], or null when a tensor of it is missing (noted by `find`). */
export function selectLayout(
  name: string,
  n: number,
  k: number,
  find: Find,
  has: (name: string) => boolean,
  block: BlockSize,
): Layout | null {
  if (has(`${name}.weight_packed`)) {
    const packed = find(`${name}.weight_packed`);
    return packed && int4Layout(name, packed, find, has, n, k);
  }
  const stored = find(`${name}.weight`);
  if (!stored) return null;
  if (stored.dtype !== "F8_E4M3") return denseLayout(stored, n, k);
  if (!has(`${name}.weight_scale_inv`) && has(`${name}.weight_scale`)) {
    throw new TensorMisfit(
      `${name}.weight_scale: FP8 with per-channel or per-tensor scales is not supported`,
    );
  }
  const scale = find(`${name}.weight_scale_inv`);
  return scale && fp8Layout(stored, scale, n, k, block);
}

/** The matrix [n, k] in float32, on the host. */
export function dequantize(layout: Layout): Float32Array {
  const { n, k } = layout;
  const weight = planeBytes(layout.weight);
  if (layout.kind === "dense") return floatsOf(layout.weight.stored.dtype as FloatDType, weight);
  if (layout.kind === "fp8") {
    const scales = floatsOf("F32", planeBytes(layout.scale));
    return dequantizeFp8(weight, scales, n, k, { n: layout.blockN, k: layout.blockK });
  }
  const scales = floatsOf(layout.scale.stored.dtype as FloatDType, planeBytes(layout.scale));
  return dequantizeInt4(weight, scales, layout.zero && planeBytes(layout.zero), n, k, layout.group);
}
