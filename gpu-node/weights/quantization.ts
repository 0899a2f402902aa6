// quantization_config of config.json: what it may say. The tensors decide how each layer is read; this refuses, by
// name, what would be read wrongly.
import { CheckpointError } from "./errors.ts";
import { type BlockSize, DEFAULT_BLOCK } from "./formats/fp8-block.ts";
import { isObject } from "./json.ts";

export interface QuantizationSpec {
  method: "none" | "fp8" | "compressed-tensors";
  /** Block of FP8 scales. */
  block: BlockSize;
}

const SUPPORTED =
  'supported: "fp8" with weight_block_size, "compressed-tensors" with format "pack-quantized" (int4)';

/** Throws CheckpointError naming the key. */
export function readQuantization(config: Record<string, unknown>, where: string): QuantizationSpec {
  const quant = config.quantization_config ?? config.compression_config ?? null;
  if (quant === null) return { method: "none", block: DEFAULT_BLOCK };
  const refuse = (key: string, value: unknown) =>
    new CheckpointError(
      "unsupported",
      where,
      `quantization_config${key} ${JSON.stringify(value)}; ${SUPPORTED}`,
    );
  if (!isObject(quant)) throw refuse("", quant);
  const method = quant.quant_method ?? (config.compression_config ? "compressed-tensors" : undefined);
  if (method === "fp8") {
    if (quant.fmt !== undefined && quant.fmt !== "e4m3") throw refuse(".fmt", quant.fmt);
    return { method, block: readBlock(quant.weight_block_size, refuse) };
  }
  if (method !== "compressed-tensors") throw refuse(".quant_method", method);
  if (quant.format !== "pack-quantized") throw refuse(".format", quant.format);
  const groups = isObject(quant.config_groups) ? quant.config_groups : {};
  for (const [name, group] of Object.entries(groups)) {
    const weights = isObject(group) ? group.weights : null;
    if (!isObject(weights)) continue;
    const at = (key: string) => `.config_groups.${name}.weights.${key}`;
    if (weights.num_bits !== 4) throw refuse(at("num_bits"), weights.num_bits);
    if (weights.type !== undefined && weights.type !== "int") throw refuse(at("type"), weights.type);
    if (weights.strategy !== "group" && weights.strategy !== "channel")
      throw refuse(at("strategy"), weights.strategy);
    // "weight" (static) reorders only while quantizing; "group" permutes the columns that a scale covers.
    if (weights.actorder === "group" || weights.actorder === true)
      throw refuse(at("actorder"), weights.actorder);
  }
  return { method, block: DEFAULT_BLOCK };
}

function readBlock(value: unknown, refuse: (key: string, value: unknown) => CheckpointError): BlockSize {
  const isSize = (size: unknown) =>
    Number.isSafeInteger(size) && (size as number) > 0 && (size as number) <= 65536;
  if (!Array.isArray(value) || value.length !== 2 || !value.every(isSize))
    throw refuse(".weight_block_size", value);
  return { n: value[0], k: value[1] };
}
