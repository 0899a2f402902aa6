import { type Family, gqa, layerCount, mlp } from "./common.ts";

/** Llama 2 and 3. */
export const llama: Family = {
  name: "llama",
  architectures: ["LlamaForCausalLM"],
  modelTypes: ["llama"],
  read(config) {
    const dense = mlp(config, config.boolean("mlp_bias", false));
    return {
      attention: gqa(config, { qkNorm: false, outputBias: true, partialRotary: null }),
      layers: Array.from({ length: layerCount(config) }, () => dense),
      mtpLayers: 0,
    };
  },
};
