// Sigmoid routing with a correction bias and groups (DeepSeek-V3, arXiv 2412.19437, 2.1.2), which GLM-4.5 shares.
import type { ConfigReader } from "../config-reader.ts";
import type { MlpSpec, MoeSpec } from "../spec.ts";
import { EXPERTS, LAYERS, layerCount, mlp, WIDTH } from "./common.ts";

export interface SigmoidMoeDefaults {
  groups: number;
  topGroups: number;
  denseLayers: number;
}

/** Kinds of all layers: the first ones dense, the others mixtures with shared experts. */
export function readSigmoidMoeLayers(
  config: ConfigReader,
  defaults: SigmoidMoeDefaults,
): (MlpSpec | MoeSpec)[] {
  config.only("scoring_func", ["sigmoid"]);
  config.only("topk_method", ["noaux_tc"]);
  config.only("moe_layer_freq", [1]);
  const count = layerCount(config);
  const sparse = moe(config, defaults);
  if (config.has("mlp_layer_types")) {
    const kinds = config.list("mlp_layer_types", "string");
    const wrong = kinds.length !== count || kinds.some((kind) => kind !== "dense" && kind !== "sparse");
    if (wrong) throw config.error("mlp_layer_types", `must be ${count} times "dense" or "sparse"`);
    return kinds.map((kind) => (kind === "dense" ? mlp(config) : sparse));
  }
  const dense = config.integer("first_k_dense_replace", { min: 0, max: LAYERS.max }, defaults.denseLayers);
  return Array.from({ length: count }, (_, layer) => (layer < dense ? mlp(config) : sparse));
}

function moe(config: ConfigReader, defaults: SigmoidMoeDefaults): MoeSpec {
  const experts = config.integer(
    config.has("n_routed_experts") ? "n_routed_experts" : "num_local_experts",
    EXPERTS,
  );
  const groups = config.integer("n_group", { min: 1, max: experts }, defaults.groups);
  const topGroups = config.integer("topk_group", { min: 1, max: groups }, defaults.topGroups);
  if (experts % groups) throw config.error("n_group", `${groups} does not divide ${experts} experts`);
  if (groups > 1 && experts / groups < 2) {
    throw config.error(
      "n_group",
      `a group's score is the sum of its two best, of ${experts / groups} experts`,
    );
  }
  const perToken = config.integer("num_experts_per_tok", { min: 1, max: experts });
  if (perToken > (experts / groups) * topGroups) {
    throw config.error(
      "num_experts_per_tok",
      `${perToken} experts do not fit in ${topGroups} of ${groups} groups`,
    );
  }
  const intermediate = config.integer("moe_intermediate_size", WIDTH);
  return {
    kind: "moe",
    experts,
    perToken,
    intermediate,
    sharedIntermediate: intermediate * config.integer("n_shared_experts", { min: 0, max: 64 }, 1),
    scoring: "sigmoid",
    correctionBias: true,
    groups,
    topGroups,
    normalize: config.boolean("norm_topk_prob", true),
    scale: config.number("routed_scaling_factor", { min: 1e-6, max: 1e6 }, 1),
  };
}

/** Draft (MTP) layers that a checkpoint may carry behind its last layer, whatever the config says about them: one. */
export function draftLayers(config: ConfigReader): number {
  return Math.max(1, config.integer("num_nextn_predict_layers", { min: 0, max: 16 }, 1));
}
