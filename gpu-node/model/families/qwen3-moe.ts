import type { ConfigReader } from "../config-reader.ts";
import type { MoeSpec } from "../spec.ts";
import { EXPERTS, type Family, gqa, LAYERS, layerCount, mlp, WIDTH } from "./common.ts";

/** Qwen3 with a mixture of experts: softmax routing, no shared expert. */
export const qwen3Moe: Family = {
  name: "qwen3-moe",
  architectures: ["Qwen3MoeForCausalLM"],
  modelTypes: ["qwen3_moe"],
  read(config) {
    const count = layerCount(config);
    const step = config.integer("decoder_sparse_step", LAYERS, 1);
    const denseOnly = config.list("mlp_only_layers", "number");
    const isSparse = (layer: number) => !denseOnly.includes(layer) && (layer + 1) % step === 0;
    const sparse = moe(config);
    return {
      attention: gqa(config, { qkNorm: true, outputBias: true, partialRotary: null }),
      layers: Array.from({ length: count }, (_, layer) => (isSparse(layer) ? sparse : mlp(config))),
      mtpLayers: 0,
    };
  },
};

function moe(config: ConfigReader): MoeSpec {
  // transformers 4 writes num_experts, transformers 5 num_local_experts.
  const experts = config.integer(config.has("num_experts") ? "num_experts" : "num_local_experts", EXPERTS);
  return {
    kind: "moe",
    experts,
    perToken: config.integer("num_experts_per_tok", { min: 1, max: experts }),
    intermediate: config.integer("moe_intermediate_size", WIDTH),
    sharedIntermediate: 0,
    scoring: "softmax",
    correctionBias: false,
    groups: 1,
    topGroups: 1,
    normalize: config.boolean("norm_topk_prob", false),
    scale: 1,
  };
}
