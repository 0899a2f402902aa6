import { type Family, gqa, layerCount, mlp } from "./common.ts";

/** Qwen3, dense. */
export const qwen3: Family = {
  name: "qwen3",
  architectures: ["Qwen3ForCausalLM"],
  modelTypes: ["qwen3"],
  read(config) {
    const dense = mlp(config);
    return {
      attention: gqa(config, { qkNorm: true, outputBias: true, partialRotary: null }),
      layers: Array.from({ length: layerCount(config) }, () => dense),
      mtpLayers: 0,
    };
  },
};
