// What the families' configs have in common, with the bounds of every number.
import type { ConfigReader } from "../config-reader.ts";
import { readRope } from "../rope.ts";
import type { GqaSpec, MlpSpec, ModelSpec } from "../spec.ts";

/** What a family's file reads; the rest of a ModelSpec is the same for all (config.ts). */
export type FamilySpec = Pick<ModelSpec, "attention" | "layers"> & { mtpLayers: number };

export interface Family {
  name: string;
  /** Values of `architectures` in config.json. */
  architectures: readonly string[];
  /** Values of `model_type`, for configs without `architectures`. */
  modelTypes: readonly string[];
  read(config: ConfigReader): FamilySpec;
}

export const WIDTH = { min: 1, max: 1 << 20 };
export const HEADS = { min: 1, max: 128 };
export const LAYERS = { min: 1, max: 1024 };
export const EXPERTS = { min: 1, max: 4096 };

export function layerCount(config: ConfigReader): number {
  return config.integer("num_hidden_layers", LAYERS);
}

export function mlp(config: ConfigReader, bias = false): MlpSpec {
  return { kind: "mlp", intermediate: config.integer("intermediate_size", WIDTH), bias };
}

/** Grouped-query attention as llama, qwen3 and glm4_moe spell it. */
export function gqa(
  config: ConfigReader,
  options: { qkNorm: boolean; outputBias: boolean; partialRotary: number | null },
): GqaSpec {
  const heads = config.integer("num_attention_heads", HEADS);
  const kvHeads = config.integer("num_key_value_heads", HEADS, heads);
  if (heads % kvHeads) throw config.error("num_key_value_heads", `${kvHeads} does not divide ${heads} heads`);
  const headDim = readHeadDim(config, heads);
  const bias = config.boolean("attention_bias", false);
  refuseSlidingWindow(config);
  return {
    kind: "gqa",
    heads,
    kvHeads,
    headDim,
    qkvBias: bias,
    outputBias: bias && options.outputBias,
    qkNorm: options.qkNorm,
    softmaxScale: headDim ** -0.5,
    rope: readRope(config, headDim, false, options.partialRotary).spec,
  };
}

/** head_dim, which need not be hidden_size / heads (Qwen3, GLM). */
function readHeadDim(config: ConfigReader, heads: number): number {
  if (!config.has("head_dim")) {
    const hidden = config.integer("hidden_size", WIDTH);
    if (hidden % heads)
      throw config.error("num_attention_heads", `${heads} does not divide hidden_size ${hidden}`);
  }
  const headDim = config.has("head_dim")
    ? config.integer("head_dim", { min: 16, max: 256 })
    : config.integer("hidden_size", WIDTH) / heads;
  if (headDim < 16 || headDim > 256 || headDim % 8) {
    throw config.error(
      "head_dim",
      `${headDim} is not supported; supported: multiples of 8 from 16 to 256`,
      "unsupported",
    );
  }
  return headDim;
}

function refuseSlidingWindow(config: ConfigReader): void {
  config.only("use_sliding_window", [false]);
  for (const type of config.list("layer_types", "string")) {
    if (type !== "full_attention") {
      throw config.error(
        "layer_types",
        `"${type}" is not supported; supported: "full_attention"`,
        "unsupported",
      );
    }
  }
}
