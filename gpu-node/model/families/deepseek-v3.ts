import type { ConfigReader } from "../config-reader.ts";
import { readRope } from "../rope.ts";
import type { MlaSpec } from "../spec.ts";
import { type Family, HEADS, WIDTH } from "./common.ts";
import { draftLayers, readSigmoidMoeLayers } from "./sigmoid-moe.ts";

/** The reference builds the norms of both latents with its default epsilon, whatever rms_norm_eps says. */
const LATENT_EPS = 1e-6;

/** DeepSeek-V3 and R1, Kimi K2, and the language model of Kimi K2.5. */
export const deepseekV3: Family = {
  name: "deepseek-v3",
  architectures: ["DeepseekV3ForCausalLM"],
  modelTypes: ["deepseek_v3", "kimi_k2"],
  read(config) {
    return {
      attention: mla(config),
      layers: readSigmoidMoeLayers(config, { groups: 8, topGroups: 4, denseLayers: 3 }),
      mtpLayers: draftLayers(config),
    };
  },
};

function mla(config: ConfigReader): MlaSpec {
  const kvLora = config.integer("kv_lora_rank", { min: 64, max: 2048 });
  if (kvLora % 64) throw config.error("kv_lora_rank", `${kvLora} is not a multiple of 64`, "unsupported");
  const ropeDim = config.integer("qk_rope_head_dim", { min: 2, max: 256 });
  const nopeDim = config.integer("qk_nope_head_dim", { min: 1, max: 1024 });
  const valueDim = config.integer("v_head_dim", { min: 1, max: 1024 });
  for (const [key, dim] of Object.entries({
    qk_rope_head_dim: ropeDim,
    qk_nope_head_dim: nopeDim,
    v_head_dim: valueDim,
  })) {
    if (dim % 8) throw config.error(key, `${dim} is not a multiple of 8`, "unsupported");
  }
  const rope = readRope(config, ropeDim, config.boolean("rope_interleave", true), null);
  return {
    kind: "mla",
    heads: config.integer("num_attention_heads", HEADS),
    qLora: config.has("q_lora_rank") ? config.integer("q_lora_rank", WIDTH) : null,
    kvLora,
    nopeDim,
    ropeDim,
    valueDim,
    bias: config.boolean("attention_bias", false),
    softmaxScale: (nopeDim + ropeDim) ** -0.5 * rope.softmaxFactor,
    latentEps: LATENT_EPS,
    rope: rope.spec,
  };
}
