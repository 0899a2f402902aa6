// config.json -> ModelSpec.
import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { CheckpointError } from "../weights/errors.ts";
import { isObject } from "../weights/json.ts";
import { readQuantization } from "../weights/quantization.ts";
import { ConfigReader } from "./config-reader.ts";
import { type Family, WIDTH } from "./families/common.ts";
import { deepseekV3 } from "./families/deepseek-v3.ts";
import { glm4Moe } from "./families/glm4-moe.ts";
import { llama } from "./families/llama.ts";
import { qwen3 } from "./families/qwen3.ts";
import { qwen3Moe } from "./families/qwen3-moe.ts";
import type { ModelSpec } from "./spec.ts";

export const FAMILIES: readonly Family[] = [llama, qwen3, qwen3Moe, glm4Moe, deepseekV3];

/** Multimodal wrappers whose language model is one of the families: its config key and tensor prefix. */
const WRAPPERS: Record<string, { config: string; prefix: string; others: RegExp }> = {
  KimiK25ForConditionalGeneration: {
    config: "text_config",
    prefix: "language_model.",
    others: /^(vision_tower|mm_projector|multi_modal_projector)\./,
  },
};

const MAX_CONFIG_BYTES = 16 * 1024 * 1024;

/** Reads and checks DIR/config.json. Throws CheckpointError naming the key, or what is supported. */
export function readModelSpec(dir: string): ModelSpec {
  const path = join(dir, "config.json");
  if (!existsSync(path)) throw new CheckpointError("not_a_checkpoint", dir, "has no config.json");
  if (statSync(path).size > MAX_CONFIG_BYTES) throw new CheckpointError("bad_config", path, "is too large");
  return parseModelSpec(readFileSync(path, "utf8"), path);
}

/** As readModelSpec, from the text of a config; `where` names it in errors. */
export function parseModelSpec(text: string, where: string): ModelSpec {
  const outer = parseConfig(text, where);
  const architecture = architectureOf(new ConfigReader(outer, where));
  const wrapper = Object.hasOwn(WRAPPERS, architecture) ? WRAPPERS[architecture] : null;
  const inner = wrapper ? outer[wrapper.config] : outer;
  if (!isObject(inner))
    throw new CheckpointError("bad_config", where, `${wrapper?.config}: must be an object`);
  const config = new ConfigReader(inner, where, wrapper ? `${wrapper.config}.` : "");
  const family = familyOf(wrapper ? architectureOf(config) : architecture, where);

  config.only("hidden_act", ["silu"]);
  const { attention, layers, mtpLayers } = family.read(config);
  const prefix = wrapper?.prefix ?? "";
  const quantized = inner.quantization_config || inner.compression_config ? inner : outer;
  return {
    family: family.name,
    architecture,
    hidden: config.integer("hidden_size", WIDTH),
    vocab: config.integer("vocab_size", { min: 1, max: 1 << 24 }),
    maxPositions: config.integer("max_position_embeddings", { min: 1, max: 2 ** 30 }, 2048),
    normEps: config.number("rms_norm_eps", { min: 1e-12, max: 0.1 }, 1e-6),
    tiedEmbeddings: config.boolean("tie_word_embeddings", false),
    attention,
    layers,
    weightPrefix: prefix,
    ignoredTensors: ignoredTensors(prefix, layers.length, mtpLayers, wrapper?.others),
    quantization: readQuantization(quantized, where),
  };
}

/**
 * Python writes NaN and Infinity as bare words, which JSON does not have. They become strings here, so that the
 * complaint names the key that holds one.
 */
function parseConfig(text: string, where: string): Record<string, unknown> {
  const quoted = text.replace(/"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b/g, (token) =>
    token.startsWith('"') ? token : `"${token}"`,
  );
  let value: unknown;
  try {
    value = JSON.parse(quoted);
  } catch (error) {
    throw new CheckpointError("bad_config", where, error instanceof Error ? error.message : String(error));
  }
  if (!isObject(value)) throw new CheckpointError("bad_config", where, "is not a JSON object");
  return value;
}

/** The architecture by name, or the model type where a config has only that. */
function architectureOf(config: ConfigReader): string {
  const named = config.list("architectures", "string")[0] ?? config.string("model_type");
  if (named === undefined) throw config.error("architectures", "is missing");
  return named;
}

function familyOf(architecture: string, where: string): Family {
  const family = FAMILIES.find((one) => [...one.architectures, ...one.modelTypes].includes(architecture));
  if (family) return family;
  const supported = [...FAMILIES.flatMap((one) => one.architectures), ...Object.keys(WRAPPERS)].join(", ");
  throw new CheckpointError(
    "unsupported",
    where,
    `architecture ${architecture} is not supported; supported: ${supported}`,
  );
}

/** Draft (MTP) layers lie behind the last layer; inv_freq is computed, not loaded. */
function ignoredTensors(prefix: string, layers: number, mtpLayers: number, others?: RegExp) {
  return (name: string): boolean => {
    if (others?.test(name)) return true;
    if (!name.startsWith(prefix)) return false;
    const own = name.slice(prefix.length);
    const layer = /^model\.layers\.(\d+)\./.exec(own);
    if (layer && Number(layer[1]) >= layers && Number(layer[1]) < layers + mtpLayers) return true;
    return own.endsWith(".rotary_emb.inv_freq");
  };
}
