// A checkpoint of random family, shape and format: no shape may be special.
import { type Config, type Recipe, randomOf } from "./random-checkpoint.ts";

const FAMILIES = ["llama", "qwen3", "qwen3_moe", "glm4_moe", "deepseek_v3"] as const;

/** Prime, so that no width of a vocabulary fits a tile. */
const VOCAB = 53;

export function randomRecipe(seed: number): Recipe {
  const random = randomOf(seed);
  const between = (low: number, high: number) => low + Math.floor(random() * (high - low + 1));
  const pick = <T>(items: readonly T[]): T => items[between(0, items.length - 1)];
  const chance = () => random() < 0.5;

  const family = FAMILIES[seed % FAMILIES.length];
  const int4 = chance();
  const group = pick([8, 12, 16, 32]);
  // Groups must divide the columns of every quantized matrix.
  const width = () => (int4 ? group * between(1, 5) : between(9, 150));
  const layers = between(1, 3);
  const config: Config = {
    model_type: family,
    vocab_size: VOCAB,
    hidden_act: "silu",
    hidden_size: width(),
    intermediate_size: width(),
    num_hidden_layers: layers,
    rms_norm_eps: pick([1e-6, 1e-5, 1e-3]),
    max_position_embeddings: 4096,
    tie_word_embeddings: chance(),
    attention_bias: chance(),
    ...rope(),
  };

  function rope(): Config {
    const theta = pick([1e4, 5e5, 1e6]);
    const scaled = pick<Config>([
      { rope_type: "default" },
      { rope_type: "linear", factor: 2 },
      { rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 4 },
      { rope_type: "yarn", factor: 4, beta_fast: pick([1, 16, 32]), beta_slow: 1, truncate: chance() },
      { rope_type: "yarn", factor: 16, mscale: 1, mscale_all_dim: pick([0.5, 1]) },
    ]);
    const parameters = { original_max_position_embeddings: 32, ...scaled };
    return chance()
      ? { rope_parameters: { rope_theta: theta, ...parameters } }
      : { rope_theta: theta, rope_scaling: parameters };
  }

  function heads(): Config {
    const kv = pick([1, 2, 3]);
    return { num_attention_heads: kv * between(1, 5), num_key_value_heads: kv, head_dim: 8 * between(2, 8) };
  }

  function experts(key: string, groups: number): Config {
    const count = groups * between(3, 11);
    return {
      [key]: count,
      num_experts_per_tok: between(1, Math.min(6, count / groups)),
      moe_intermediate_size: width(),
    };
  }

  function sigmoidMoe(groups: number): Config {
    return {
      ...experts("n_routed_experts", groups),
      n_shared_experts: between(1, 2),
      n_group: groups,
      topk_group: between(1, groups),
      norm_topk_prob: chance(),
      routed_scaling_factor: 1 + random(),
      first_k_dense_replace: between(0, layers),
    };
  }

  switch (family) {
    case "llama":
      Object.assign(config, heads(), { architectures: ["LlamaForCausalLM"], mlp_bias: chance() });
      break;
    case "qwen3":
      Object.assign(config, heads(), { architectures: ["Qwen3ForCausalLM"] });
      break;
    case "qwen3_moe":
      Object.assign(config, heads(), experts("num_experts", 1), {
        architectures: ["Qwen3MoeForCausalLM"],
        norm_topk_prob: chance(),
      });
      break;
    case "glm4_moe":
      Object.assign(config, heads(), sigmoidMoe(1), {
        architectures: ["Glm4MoeForCausalLM"],
        use_qk_norm: chance(),
        partial_rotary_factor: pick([0.25, 0.5, 1]),
      });
      break;
    case "deepseek_v3":
      Object.assign(config, sigmoidMoe(pick([1, 2, 4])), {
        architectures: ["DeepseekV3ForCausalLM"],
        num_attention_heads: between(1, 7),
        q_lora_rank: chance() ? between(9, 90) : null,
        kv_lora_rank: 64 * between(1, 3),
        qk_nope_head_dim: 8 * between(1, 6),
        qk_rope_head_dim: 8 * between(1, 4),
        v_head_dim: 8 * between(1, 6),
        rope_interleave: chance(),
      });
  }

  const match = int4 ? /mlp\.(experts\.\d+\.|shared_experts\.)?(gate|up|down)_proj$/ : /_proj(_with_mqa)?$/;
  const quantized = int4
    ? { match, kind: "int4" as const, group, asymmetric: chance() }
    : { match, kind: "fp8" as const, blockN: pick([16, 128]), blockK: pick([24, 128]) };
  const block = [
    quantized.kind === "fp8" ? quantized.blockN : 128,
    quantized.kind === "fp8" ? quantized.blockK : 128,
  ];
  const isQuantized = random() < 0.7;
  if (isQuantized && !int4) config.quantization_config = { quant_method: "fp8", weight_block_size: block };
  return {
    config,
    seed,
    float: pick(["BF16", "BF16", "F16", "F32"]),
    quantized: isQuantized ? quantized : undefined,
    shards: between(1, 2),
  };
}
