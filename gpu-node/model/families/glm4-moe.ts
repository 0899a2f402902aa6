import { type Family, gqa } from "./common.ts";
import { draftLayers, readSigmoidMoeLayers } from "./sigmoid-moe.ts";

/** GLM-4.5, 4.6 and 4.7: half of each head is rotated, q and k may be normalized. */
export const glm4Moe: Family = {
  name: "glm4-moe",
  architectures: ["Glm4MoeForCausalLM"],
  modelTypes: ["glm4_moe"],
  read(config) {
    return {
      attention: gqa(config, {
        qkNorm: config.boolean("use_qk_norm", false),
        outputBias: false,
        partialRotary: 0.5,
      }),
      layers: readSigmoidMoeLayers(config, { groups: 1, topGroups: 1, denseLayers: 1 }),
      mtpLayers: draftLayers(config),
    };
  },
};
