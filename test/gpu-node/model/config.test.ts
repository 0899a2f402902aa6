import assert from "node:assert/strict";
import { test } from "node:test";
import { parseModelSpec } from "../../../gpu-node/model/config.ts";
import type { MlaSpec, ModelSpec } from "../../../gpu-node/model/spec.ts";
import { CheckpointError, type CheckpointErrorCode } from "../../../gpu-node/weights/errors.ts";
import { PUBLISHED } from "./published-configs.ts";

const parse = (config: object): ModelSpec => parseModelSpec(JSON.stringify(config), "config.json");

function refused(config: object | string, code: CheckpointErrorCode, message: RegExp): void {
  assert.throws(
    () => (typeof config === "string" ? parseModelSpec(config, "config.json") : parse(config)),
    (error) => {
      assert.ok(error instanceof CheckpointError, String(error));
      assert.equal(error.code, code, error.message);
      assert.match(error.message, message);
      return true;
    },
  );
}

const { llama31, qwen3Moe, glm46, deepseekV3, kimiK2 } = PUBLISHED;

test("Llama 3.1 8B in the spelling of transformers 4", () => {
  const spec = parse(llama31);
  assert.equal(spec.family, "llama");
  assert.equal(spec.layers.length, 32);
  const { attention } = spec;
  assert.ok(attention.kind === "gqa");
  assert.deepEqual([attention.heads, attention.kvHeads, attention.headDim], [32, 8, 128]);
  assert.equal(attention.rope.dims, 128);
  // The highest frequency is kept, the lowest divided by the factor.
  assert.equal(attention.rope.inverseFrequencies[0], 1);
  const lowest = 500_000 ** (-126 / 128) / 8;
  assert.ok(Math.abs(attention.rope.inverseFrequencies[63] / lowest - 1) < 1e-6);
});

test("the spelling of transformers 5 means the same", () => {
  const { rope_theta, rope_scaling, ...rest } = llama31;
  assert.deepEqual(
    parse({ ...rest, rope_parameters: { rope_theta, ...rope_scaling } }).attention,
    parse(llama31).attention,
  );
  const { num_experts, ...others } = qwen3Moe;
  assert.deepEqual(parse({ ...others, num_local_experts: num_experts }).layers, parse(qwen3Moe).layers);
});

test("Qwen3-30B-A3B", () => {
  const spec = parse(qwen3Moe);
  const moe = spec.layers[0];
  assert.ok(spec.attention.kind === "gqa" && moe.kind === "moe");
  assert.equal(spec.layers.length, 48);
  assert.deepEqual([spec.attention.headDim, spec.attention.qkNorm], [128, true]);
  assert.deepEqual([moe.experts, moe.perToken, moe.scoring, moe.sharedIntermediate], [128, 8, "softmax", 0]);
});

test("GLM-4.6", () => {
  const spec = parse(glm46);
  assert.ok(spec.attention.kind === "gqa");
  assert.deepEqual(
    spec.layers.slice(0, 4).map((layer) => layer.kind),
    ["mlp", "mlp", "mlp", "moe"],
  );
  assert.deepEqual([spec.attention.headDim, spec.attention.rope.dims], [128, 64]);
  assert.deepEqual(
    [spec.attention.qkvBias, spec.attention.outputBias, spec.attention.qkNorm],
    [true, false, true],
  );
  assert.ok(spec.ignoredTensors("model.layers.92.eh_proj.weight"));
  assert.ok(!spec.ignoredTensors("model.layers.91.extra.weight"));
  assert.ok(!spec.ignoredTensors("model.layers.93.eh_proj.weight"));
});

test("DeepSeek-V3 and Kimi K2", () => {
  const deepseek = parse(deepseekV3);
  const kimi = parse(kimiK2);
  const [a, b] = [deepseek.attention, kimi.attention] as MlaSpec[];
  assert.deepEqual([deepseek.layers.length, kimi.layers.length], [61, 61]);
  assert.deepEqual([a.heads, b.heads, a.qLora, a.kvLora, a.ropeDim], [128, 64, 1536, 512, 64]);
  const moe = [deepseek, kimi].map((spec) => spec.layers[60]);
  assert.ok(moe[0].kind === "moe" && moe[1].kind === "moe");
  assert.deepEqual([moe[0].groups, moe[0].topGroups, moe[1].groups, moe[1].experts], [8, 4, 1, 384]);
  assert.deepEqual([moe[0].sharedIntermediate, moe[1].scale], [2048, 2.827]);
  assert.equal(a.rope.interleaved, true);
  // yarn's mscale goes to the softmax scale, squared, and not to cos and sin.
  const mscale = 0.1 * Math.log(40) + 1;
  assert.ok(Math.abs(a.softmaxScale - 192 ** -0.5 * mscale ** 2) < 1e-12);
  assert.equal(a.rope.scale, 1);
  assert.deepEqual(deepseek.quantization, { method: "fp8", block: { n: 128, k: 128 } });
});

test("Kimi K2.5 is its language model, with a prefix; its vision tower is not used", () => {
  const spec = parse({
    architectures: ["KimiK25ForConditionalGeneration"],
    model_type: "kimi_k25",
    text_config: kimiK2,
    vision_config: {},
  });
  assert.equal(spec.family, "deepseek-v3");
  assert.equal(spec.weightPrefix, "language_model.");
  assert.ok(spec.ignoredTensors("vision_tower.patch_embed.proj.weight"));
  assert.ok(spec.ignoredTensors("language_model.model.layers.61.eh_proj.weight"));
  assert.ok(!spec.ignoredTensors("language_model.model.layers.60.odd.weight"));
});

test("an architecture that is not supported is refused by name, with what is", () => {
  for (const name of ["GlmMoeDsaForCausalLM", "MixtralForCausalLM", "constructor", "__proto__"]) {
    refused(
      { ...llama31, architectures: [name] },
      "unsupported",
      new RegExp(`${name}.*LlamaForCausalLM.*KimiK25`),
    );
  }
});

test("what would be computed wrongly is refused by name, with what is supported", () => {
  refused({ ...llama31, hidden_act: "gelu" }, "unsupported", /hidden_act: "gelu".*"silu"/);
  for (const type of ["dynamic", "longrope", "proportional"]) {
    const config = { ...llama31, rope_scaling: { rope_type: type, factor: 2 } };
    refused(
      config,
      "unsupported",
      new RegExp(`rope_scaling.rope_type.*"${type}".*default, linear, llama3, yarn`),
    );
  }
  refused({ ...qwen3Moe, use_sliding_window: true }, "unsupported", /use_sliding_window/);
  refused(
    { ...qwen3Moe, layer_types: ["sliding_attention"] },
    "unsupported",
    /layer_types: "sliding_attention"/,
  );
  refused({ ...deepseekV3, scoring_func: "softmax" }, "unsupported", /scoring_func/);
  refused({ ...deepseekV3, topk_method: "greedy" }, "unsupported", /topk_method/);
  refused({ ...deepseekV3, kv_lora_rank: 100 }, "unsupported", /kv_lora_rank: 100/);
  refused({ ...deepseekV3, v_head_dim: 100 }, "unsupported", /v_head_dim: 100/);
  refused({ ...llama31, partial_rotary_factor: 0.5 }, "unsupported", /partial_rotary_factor: 0.5/);
  refused({ ...llama31, head_dim: 100 }, "unsupported", /head_dim: 100/);
});

test("quantization methods that are not supported are refused by name", () => {
  const quantized = (quantization_config: object) => ({ ...llama31, quantization_config });
  for (const quant_method of ["awq", "gptq", "bitsandbytes", "modelopt", "mxfp4"]) {
    refused(quantized({ quant_method }), "unsupported", new RegExp(`"${quant_method}".*supported: "fp8"`));
  }
  refused(quantized({ quant_method: "fp8" }), "unsupported", /weight_block_size/);
  refused(
    quantized({ quant_method: "fp8", weight_block_size: [0, 128] }),
    "unsupported",
    /weight_block_size/,
  );
  refused(
    quantized({ quant_method: "compressed-tensors", format: "float-quantized" }),
    "unsupported",
    /float-quantized/,
  );
  const packed = (weights: object) =>
    quantized({
      quant_method: "compressed-tensors",
      format: "pack-quantized",
      config_groups: { group_0: { weights } },
    });
  refused(packed({ num_bits: 8, strategy: "group" }), "unsupported", /group_0.weights.num_bits 8/);
  refused(packed({ num_bits: 4, strategy: "block" }), "unsupported", /strategy "block"/);
  refused(packed({ num_bits: 4, strategy: "group", actorder: "group" }), "unsupported", /actorder "group"/);
  assert.equal(
    parse(packed({ num_bits: 4, strategy: "group", actorder: "weight" })).quantization.method,
    "compressed-tensors",
  );
});

test("numbers that are missing, huge, negative, fractional or not numbers name their key", () => {
  const keys = ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size"];
  for (const key of keys) {
    for (const value of [null, -1, 0, 1.5, 1e300, "8", [], {}, true]) {
      refused({ ...llama31, [key]: value }, "bad_config", new RegExp(`config.json: ${key}: `));
    }
    for (const literal of ["NaN", "Infinity", "-Infinity", "1e999"]) {
      const text = JSON.stringify(llama31).replace(new RegExp(`"${key}":\\d+`), `"${key}":${literal}`);
      refused(text, "bad_config", new RegExp(`config.json: ${key}: `));
    }
  }
  refused({ ...llama31, rms_norm_eps: -1 }, "bad_config", /rms_norm_eps/);
  refused(
    { ...llama31, rope_scaling: { ...llama31.rope_scaling, factor: -8 } },
    "bad_config",
    /rope_scaling.factor/,
  );
  refused({ ...llama31, num_key_value_heads: 5 }, "bad_config", /num_key_value_heads: 5 does not divide 32/);
  refused({ ...deepseekV3, n_group: 7 }, "bad_config", /n_group: 7 does not divide 256/);
  refused({ ...deepseekV3, num_experts_per_tok: 200 }, "bad_config", /num_experts_per_tok/);
  refused({ ...deepseekV3, qk_rope_head_dim: -64 }, "bad_config", /qk_rope_head_dim/);
  refused({ ...llama31, tie_word_embeddings: "yes" }, "bad_config", /tie_word_embeddings/);
  refused("[]", "bad_config", /not a JSON object/);
  refused('{"architectures":', "bad_config", /config.json/);
});

test("any value under any key gives a spec or a CheckpointError, never another exception", () => {
  const odd = [null, 0, -1, 1.5, 1e300, 2 ** 31, "x", "", [], [1e300], [null], {}, { type: 5 }, true, false];
  const outcomes = { spec: 0, refused: 0 };
  const attempt = (config: object) => {
    try {
      parse(config);
      outcomes.spec++;
    } catch (error) {
      assert.ok(error instanceof CheckpointError, `${JSON.stringify(config)}: ${error}`);
      outcomes.refused++;
    }
  };
  for (const config of Object.values(PUBLISHED)) {
    for (const value of odd) {
      for (const key of [...Object.keys(config), "layer_types", "mlp_layer_types", "compression_config"]) {
        attempt({ ...config, [key]: value });
      }
      for (const [key, inner] of Object.entries(config)) {
        if (typeof inner !== "object" || inner === null || Array.isArray(inner)) continue;
        for (const nested of Object.keys(inner)) attempt({ ...config, [key]: { ...inner, [nested]: value } });
      }
    }
  }
  assert.ok(outcomes.spec > 100 && outcomes.refused > 100, JSON.stringify(outcomes));
});
