// Random checkpoints of every family in the Hugging Face layout, written without any code of the loader: stored codes
// are drawn at random and their values kept in float64, so that nothing is rounded on the way to the oracle.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { decodeE4m3 } from "../../ops/formats.ts";

export type Config = Record<string, unknown>;

export interface Recipe {
  config: Config;
  seed: number;
  /** Storage of linear layers whose name matches; the rest is float. */
  quantized?: { match: RegExp } & (
    | { kind: "fp8"; blockN: number; blockK: number }
    | { kind: "int4"; group: number; asymmetric: boolean }
  );
  float?: "BF16" | "F16" | "F32";
  /** Extra scalars, such as KV scales. */
  scalars?: Record<string, number>;
  /** Prepended to every tensor name. */
  prefix?: string;
  shards?: number;
  /** Changes the tensors before they are written. */
  alter?: (files: Map<string, Stored>) => void;
}

/** Real values of all tensors, by name without prefix; matrices row by row. */
export type Values = Map<string, Float64Array>;

export interface Stored {
  dtype: string;
  shape: number[];
  bytes: Uint8Array;
}

/** A small generator with a seed (splitmix32). */
export function randomOf(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) / 2 ** 32;
  };
}

/** Writes config.json and the weights into `dir`. Returns the values that the files hold. */
export function writeCheckpoint(dir: string, recipe: Recipe): Values {
  const random = randomOf(recipe.seed);
  const values: Values = new Map();
  const files = new Map<string, Stored>();
  const prefix = recipe.prefix ?? "";
  for (const { name, shape, linear } of tensorsOf(modelConfig(recipe.config))) {
    const layer = name.replace(/\.weight$/, "");
    if (linear && recipe.quantized?.match.test(layer)) {
      const q = recipe.quantized;
      values.set(
        name,
        q.kind === "fp8"
          ? fp8(files, prefix + layer, shape, q, random)
          : int4(files, prefix + layer, shape, q, random),
      );
      continue;
    }
    const spread = shape.length === 2 ? shape[1] ** -0.5 : 0.1;
    const center = name.endsWith("norm.weight") ? 1 : 0;
    const stored = float(
      recipe.float ?? "BF16",
      shape,
      () => center + spread * (random() + random() + random() - 1.5) * 2,
    );
    files.set(prefix + name, stored.stored);
    values.set(name, stored.values);
  }
  for (const [name, value] of Object.entries(recipe.scalars ?? {})) {
    files.set(name, float("F32", [1], () => value).stored);
  }
  recipe.alter?.(files);
  mkdirSync(dir, { recursive: true });
  writeFileSync(join(dir, "config.json"), JSON.stringify(recipe.config));
  writeShards(dir, files, recipe.shards ?? 1);
  return values;
}

/** The part of a config that describes the language model. */
export function modelConfig(config: Config): Config {
  return (config.text_config as Config | undefined) ?? config;
}

interface Wanted {
  name: string;
  shape: number[];
  linear: boolean;
}

/** Names and shapes as the checkpoints of each family have them. */
function tensorsOf(config: Config): Wanted[] {
  const n = (key: string, fallback = 0) => (config[key] as number | null | undefined) ?? fallback;
  const out: Wanted[] = [];
  const vector = (name: string, size: number) => out.push({ name, shape: [size], linear: false });
  const linear = (name: string, rows: number, columns: number, bias = false) => {
    out.push({ name: `${name}.weight`, shape: [rows, columns], linear: true });
    if (bias) vector(`${name}.bias`, rows);
  };
  const hidden = n("hidden_size");
  const mlp = (name: string, width: number, bias = false) => {
    linear(`${name}.gate_proj`, width, hidden, bias);
    linear(`${name}.up_proj`, width, hidden, bias);
    linear(`${name}.down_proj`, hidden, width, bias);
  };
  out.push({ name: "model.embed_tokens.weight", shape: [n("vocab_size"), hidden], linear: false });
  if (!config.tie_word_embeddings) {
    out.push({ name: "lm_head.weight", shape: [n("vocab_size"), hidden], linear: false });
  }
  vector("model.norm.weight", hidden);
  const heads = n("num_attention_heads");
  const bias = config.attention_bias === true;
  for (let i = 0; i < n("num_hidden_layers"); i++) {
    const layer = `model.layers.${i}`;
    const attention = `${layer}.self_attn`;
    vector(`${layer}.input_layernorm.weight`, hidden);
    vector(`${layer}.post_attention_layernorm.weight`, hidden);
    if (config.kv_lora_rank) {
      const [lora, rope, nope, v] = [
        n("kv_lora_rank"),
        n("qk_rope_head_dim"),
        n("qk_nope_head_dim"),
        n("v_head_dim"),
      ];
      const qLora = n("q_lora_rank");
      if (qLora) {
        linear(`${attention}.q_a_proj`, qLora, hidden, bias);
        vector(`${attention}.q_a_layernorm.weight`, qLora);
        linear(`${attention}.q_b_proj`, heads * (nope + rope), qLora);
      } else linear(`${attention}.q_proj`, heads * (nope + rope), hidden);
      linear(`${attention}.kv_a_proj_with_mqa`, lora + rope, hidden, bias);
      vector(`${attention}.kv_a_layernorm.weight`, lora);
      linear(`${attention}.kv_b_proj`, heads * (nope + v), lora);
      linear(`${attention}.o_proj`, hidden, heads * v, bias);
    } else {
      const dim = n("head_dim", hidden / heads);
      linear(`${attention}.q_proj`, heads * dim, hidden, bias);
      linear(`${attention}.k_proj`, n("num_key_value_heads") * dim, hidden, bias);
      linear(`${attention}.v_proj`, n("num_key_value_heads") * dim, hidden, bias);
      linear(`${attention}.o_proj`, hidden, heads * dim, bias && config.model_type !== "glm4_moe");
      if (String(config.model_type).startsWith("qwen3") || config.use_qk_norm) {
        vector(`${attention}.q_norm.weight`, dim);
        vector(`${attention}.k_norm.weight`, dim);
      }
    }
    const experts = n("num_experts", n("num_local_experts", n("n_routed_experts")));
    const sparse = isSparse(config, i);
    if (!sparse) mlp(`${layer}.mlp`, n("intermediate_size"), config.mlp_bias === true);
    else {
      out.push({ name: `${layer}.mlp.gate.weight`, shape: [experts, hidden], linear: false });
      for (let e = 0; e < experts; e++) mlp(`${layer}.mlp.experts.${e}`, n("moe_intermediate_size"));
      if (config.model_type !== "qwen3_moe") {
        vector(`${layer}.mlp.gate.e_score_correction_bias`, experts);
        mlp(`${layer}.mlp.shared_experts`, n("moe_intermediate_size") * n("n_shared_experts"));
      }
    }
  }
  return out;
}

export function isSparse(config: Config, layer: number): boolean {
  if (config.model_type === "qwen3_moe") {
    const dense = (config.mlp_only_layers as number[] | undefined) ?? [];
    return (
      !dense.includes(layer) && (layer + 1) % ((config.decoder_sparse_step as number | undefined) ?? 1) === 0
    );
  }
  return config.first_k_dense_replace !== undefined && layer >= (config.first_k_dense_replace as number);
}

function count(shape: number[]): number {
  return shape.reduce((a, b) => a * b, 1);
}

/** Values cut (not rounded) to what the dtype holds. */
function float(dtype: "BF16" | "F16" | "F32", shape: number[], draw: () => number) {
  const values = new Float64Array(count(shape));
  const f32 = new Float32Array(values.length);
  const bits = new Uint32Array(f32.buffer);
  const halves = new Uint16Array(values.length);
  for (let i = 0; i < values.length; i++) {
    f32[i] = draw();
    if (dtype === "BF16") bits[i] &= 0xffff0000;
    if (dtype === "F16") {
      // Magnitudes from 2^-14 to 2 and 10 bits of fraction are common to both formats.
      if (Math.abs(f32[i]) < 2 ** -14) f32[i] = 0;
      bits[i] &= 0xffffe000;
      const exponent = f32[i] === 0 ? 0 : ((bits[i] >>> 23) & 255) - 127 + 15;
      halves[i] = ((bits[i] >>> 16) & 0x8000) | (exponent << 10) | ((bits[i] >>> 13) & 1023);
    }
    if (dtype === "BF16") halves[i] = bits[i] >>> 16;
    values[i] = f32[i];
  }
  const bytes = new Uint8Array(dtype === "F32" ? f32.buffer : halves.buffer);
  return { values, stored: { dtype, shape, bytes } };
}

function fp8(
  files: Map<string, Stored>,
  name: string,
  shape: number[],
  { blockN, blockK }: { blockN: number; blockK: number },
  random: () => number,
): Float64Array {
  const [n, k] = shape;
  const across = Math.ceil(k / blockK);
  const scales = float("F32", [Math.ceil(n / blockN), across], () => (0.5 + random()) * k ** -0.5);
  const codes = new Uint8Array(n * k);
  const values = new Float64Array(n * k);
  for (let i = 0; i < n * k; i++) {
    codes[i] = (random() < 0.5 ? 0x80 : 0) | Math.floor(random() * 0x40); // up to 1.875
    const block = Math.floor(Math.floor(i / k) / blockN) * across + Math.floor((i % k) / blockK);
    values[i] = decodeE4m3(codes[i]) * scales.values[block];
  }
  files.set(`${name}.weight`, { dtype: "F8_E4M3", shape, bytes: codes });
  files.set(`${name}.weight_scale_inv`, scales.stored);
  return values;
}

function int4(
  files: Map<string, Stored>,
  name: string,
  shape: number[],
  { group, asymmetric }: { group: number; asymmetric: boolean },
  random: () => number,
): Float64Array {
  const [n, k] = shape;
  const groups = k / group;
  const words = Math.ceil(k / 8);
  const scales = float("BF16", [n, groups], () => (0.5 + random()) * 0.25 * k ** -0.5);
  const packed = new Uint32Array(n * words);
  const zeros = new Uint32Array(Math.ceil(n / 8) * groups);
  const values = new Float64Array(n * k);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < k; j++) {
      const g = Math.floor(j / group);
      if (j % group === 0 && asymmetric) {
        zeros[Math.floor(i / 8) * groups + g] |= Math.floor(4 + 9 * random()) << (4 * (i % 8));
      }
      const nibble = Math.floor(16 * random());
      packed[i * words + Math.floor(j / 8)] |= nibble << (4 * (j % 8));
      const zero = asymmetric ? (zeros[Math.floor(i / 8) * groups + g] >>> (4 * (i % 8))) & 15 : 8;
      values[i * k + j] = (nibble - zero) * scales.values[i * groups + g];
    }
  }
  files.set(`${name}.weight_packed`, {
    dtype: "I32",
    shape: [n, words],
    bytes: new Uint8Array(packed.buffer),
  });
  files.set(`${name}.weight_scale`, scales.stored);
  files.set(`${name}.weight_shape`, {
    dtype: "I64",
    shape: [2],
    bytes: new Uint8Array(BigInt64Array.of(BigInt(n), BigInt(k)).buffer),
  });
  if (asymmetric) {
    const bytes = new Uint8Array(zeros.buffer);
    files.set(`${name}.weight_zero_point`, { dtype: "I32", shape: [Math.ceil(n / 8), groups], bytes });
  }
  return values;
}

function writeShards(dir: string, files: Map<string, Stored>, shards: number): void {
  if (shards === 1) {
    writeFileSync(join(dir, "model.safetensors"), safetensors(files));
    return;
  }
  const weightMap: Record<string, string> = {};
  const parts = Array.from({ length: shards }, () => new Map<string, Stored>());
  const pad = (i: number) => String(i).padStart(5, "0");
  for (const [i, [name, stored]] of [...files].entries()) {
    parts[i % shards].set(name, stored);
    weightMap[name] = `model-${pad((i % shards) + 1)}-of-${pad(shards)}.safetensors`;
  }
  for (const [i, part] of parts.entries()) {
    writeFileSync(join(dir, `model-${pad(i + 1)}-of-${pad(shards)}.safetensors`), safetensors(part));
  }
  writeFileSync(
    join(dir, "model.safetensors.index.json"),
    JSON.stringify({ metadata: {}, weight_map: weightMap }),
  );
}

/** A safetensors file of these tensors, in their order. */
export function safetensors(files: Map<string, Stored>): Uint8Array {
  const header: Record<string, unknown> = {};
  let end = 0;
  for (const [name, { dtype, shape, bytes }] of files) {
    header[name] = { dtype, shape, data_offsets: [end, end + bytes.length] };
    end += bytes.length;
  }
  const text = new TextEncoder().encode(JSON.stringify(header));
  const padded = Math.ceil(text.length / 8) * 8;
  const out = new Uint8Array(8 + padded + end).fill(0x20, 8, 8 + padded);
  new DataView(out.buffer).setBigUint64(0, BigInt(padded), true);
  out.set(text, 8);
  let at = 8 + padded;
  for (const { bytes } of files.values()) {
    out.set(bytes, at);
    at += bytes.length;
  }
  return out;
}
