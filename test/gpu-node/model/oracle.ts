// An independent forward pass in float64, straight from the papers: no cache, no chunks, no fusion, no shared code.
// It reads a Hugging Face config and real-valued weights, and returns the logits of every position.
import { type Config, isSparse, modelConfig, type Values } from "./random-checkpoint.ts";

/** [tokens][width] */
type Rows = Float64Array[];

export function oracleLogits(fullConfig: Config, values: Values, tokens: readonly number[]): Rows {
  const model = new Oracle(modelConfig(fullConfig), values);
  return model.forward(tokens);
}

class Oracle {
  readonly #config: Config;
  readonly #values: Values;

  constructor(config: Config, values: Values) {
    this.#config = config;
    this.#values = values;
  }

  forward(tokens: readonly number[]): Rows {
    const hidden = this.#number("hidden_size");
    const embedding = this.#weight("model.embed_tokens.weight");
    let x: Rows = tokens.map((token) => embedding.slice(token * hidden, (token + 1) * hidden));
    const eps = this.#number("rms_norm_eps");
    for (let i = 0; i < this.#number("num_hidden_layers"); i++) {
      const layer = `model.layers.${i}`;
      const normed = this.#norm(`${layer}.input_layernorm`, x, eps);
      const attended = this.#config.kv_lora_rank
        ? this.#mla(`${layer}.self_attn`, normed)
        : this.#gqa(`${layer}.self_attn`, normed, eps);
      x = add(x, attended);
      const mid = this.#norm(`${layer}.post_attention_layernorm`, x, eps);
      x = add(x, isSparse(this.#config, i) ? this.#moe(`${layer}.mlp`, mid) : this.#mlp(`${layer}.mlp`, mid));
    }
    const last = this.#norm("model.norm", x, eps);
    const head = this.#values.get("lm_head.weight") ?? embedding;
    return last.map((row) => multiply(head, row));
  }

  #number(key: string, fallback?: number): number {
    const value = (this.#config[key] as number | null | undefined) ?? fallback;
    if (value === undefined) throw new Error(`config lacks ${key}`);
    return value;
  }

  #weight(name: string): Float64Array {
    const value = this.#values.get(name);
    if (!value) throw new Error(`no tensor ${name}`);
    return value;
  }

  #linear(name: string, x: Rows): Rows {
    const bias = this.#values.get(`${name}.bias`);
    return x.map((row) => multiply(this.#weight(`${name}.weight`), row).map((y, i) => y + (bias?.[i] ?? 0)));
  }

  #norm(name: string, x: Rows, eps: number): Rows {
    const weight = this.#weight(`${name}.weight`);
    return x.map((row) => {
      const mean = row.reduce((sum, value) => sum + value * value, 0) / row.length;
      return row.map((value, i) => (value / Math.sqrt(mean + eps)) * weight[i]);
    });
  }

  /** Heads of `width` side by side in each row, normalized one by one. */
  #headNorm(name: string, x: Rows, width: number, eps: number): Rows {
    if (!this.#values.has(`${name}.weight`)) return x;
    return x.map((row) => join(this.#norm(name, split(row, width), eps)));
  }

  #gqa(name: string, x: Rows, eps: number): Rows {
    const heads = this.#number("num_attention_heads");
    const kvHeads = this.#number("num_key_value_heads");
    const dim = this.#number("head_dim", this.#number("hidden_size") / heads);
    const rope = ropeOf(this.#config, dim);
    const turn = (rows: Rows) =>
      rows.map((row, t) => join(split(row, dim).map((head) => rotateHalf(head, t, rope))));
    const q = turn(this.#headNorm(`${name}.q_norm`, this.#linear(`${name}.q_proj`, x), dim, eps));
    const k = turn(this.#headNorm(`${name}.k_norm`, this.#linear(`${name}.k_proj`, x), dim, eps));
    const v = this.#linear(`${name}.v_proj`, x);
    const out = x.map((_, t) =>
      join(
        Array.from({ length: heads }, (_, h) => {
          const kv = Math.floor(h / (heads / kvHeads));
          const part = (rows: Rows, head: number) =>
            rows.map((row) => row.slice(head * dim, (head + 1) * dim));
          return attend(part([q[t]], h)[0], part(k, kv), part(v, kv), t, dim ** -0.5);
        }),
      ),
    );
    return this.#linear(`${name}.o_proj`, out);
  }

  #mla(name: string, x: Rows): Rows {
    const heads = this.#number("num_attention_heads");
    const lora = this.#number("kv_lora_rank");
    const nope = this.#number("qk_nope_head_dim");
    const ropeDim = this.#number("qk_rope_head_dim");
    const valueDim = this.#number("v_head_dim");
    const rope = ropeOf(this.#config, ropeDim);
    const rotate = this.#config.rope_interleave === false ? rotateHalf : rotatePairs;
    const latentEps = 1e-6;
    const query = this.#config.q_lora_rank
      ? this.#linear(
          `${name}.q_b_proj`,
          this.#norm(`${name}.q_a_layernorm`, this.#linear(`${name}.q_a_proj`, x), latentEps),
        )
      : this.#linear(`${name}.q_proj`, x);
    const compressed = this.#linear(`${name}.kv_a_proj_with_mqa`, x);
    const latent = compressed.map((row) => row.slice(0, lora));
    const kRope = compressed.map((row, t) => rotate(row.slice(lora), t, rope));
    const kv = this.#linear(`${name}.kv_b_proj`, this.#norm(`${name}.kv_a_layernorm`, latent, latentEps));
    const scale = (nope + ropeDim) ** -0.5 * rope.softmaxFactor;
    const out = x.map((_, t) =>
      join(
        Array.from({ length: heads }, (_, h) => {
          const head = query[t].slice(h * (nope + ropeDim), (h + 1) * (nope + ropeDim));
          const q = join([head.slice(0, nope), rotate(head.slice(nope), t, rope)]);
          const begin = h * (nope + valueDim);
          const keys = kv.map((row, s) => join([row.slice(begin, begin + nope), kRope[s]]));
          const vectors = kv.map((row) => row.slice(begin + nope, begin + nope + valueDim));
          return attend(q, keys, vectors, t, scale);
        }),
      ),
    );
    return this.#linear(`${name}.o_proj`, out);
  }

  #mlp(name: string, x: Rows): Rows {
    const gate = this.#linear(`${name}.gate_proj`, x);
    const up = this.#linear(`${name}.up_proj`, x);
    const hidden = gate.map((row, t) => row.map((value, i) => (value / (1 + Math.exp(-value))) * up[t][i]));
    return this.#linear(`${name}.down_proj`, hidden);
  }

  #moe(name: string, x: Rows): Rows {
    const routed = this.#linear(`${name}.gate`, x).map((logits, t) => {
      const sum = new Float64Array(x[t].length);
      for (const [expert, weight] of this.#route(name, logits)) {
        const y = this.#mlp(`${name}.experts.${expert}`, [x[t]])[0];
        for (let i = 0; i < sum.length; i++) sum[i] += weight * y[i];
      }
      return sum;
    });
    const shared = this.#values.has(`${name}.shared_experts.up_proj.weight`);
    return shared ? add(routed, this.#mlp(`${name}.shared_experts`, x)) : routed;
  }

  /** [expert, weight] of one token. */
  #route(name: string, logits: Float64Array): [number, number][] {
    const perToken = this.#number("num_experts_per_tok");
    const softmaxRouted = this.#config.model_type === "qwen3_moe";
    const total = logits.reduce((sum, l) => sum + Math.exp(l), 0);
    const scores = logits.map((l) => (softmaxRouted ? Math.exp(l) / total : 1 / (1 + Math.exp(-l))));
    const bias = this.#values.get(`${name}.gate.e_score_correction_bias`);
    const choice = scores.map((score, e) => score + (bias?.[e] ?? 0));
    const groups = softmaxRouted ? 1 : this.#number("n_group", 1);
    const size = scores.length / groups;
    const best = (list: number[], many: number) => [...list].sort((a, b) => b - a).slice(0, many);
    const groupScores = Array.from({ length: groups }, (_, g) =>
      best([...choice.slice(g * size, (g + 1) * size)], 2).reduce((a, b) => a + b, 0),
    );
    const kept = order(groupScores).slice(0, groups > 1 ? this.#number("topk_group") : 1);
    const chosen = order([...choice])
      .filter((e) => kept.includes(Math.floor(e / size)))
      .slice(0, perToken);
    const normalize = (this.#config.norm_topk_prob as boolean | undefined) ?? !softmaxRouted;
    const sum = chosen.reduce((acc, e) => acc + scores[e], 0);
    const scale = softmaxRouted ? 1 : this.#number("routed_scaling_factor", 1);
    return chosen.map((e) => [e, (scores[e] / (normalize ? sum : 1)) * scale]);
  }
}

interface OracleRope {
  frequencies: number[];
  scale: number;
  softmaxFactor: number;
}

function ropeOf(config: Config, width: number): OracleRope {
  const scaling = (config.rope_scaling ?? config.rope_parameters ?? {}) as Record<
    string,
    number | string | boolean
  >;
  const number = (key: string, fallback: number) => (scaling[key] as number | undefined) ?? fallback;
  const theta = number("rope_theta", (config.rope_theta as number | undefined) ?? 10_000);
  const partial = number("partial_rotary_factor", (config.partial_rotary_factor as number | undefined) ?? 1);
  const dims = Math.floor(width * (config.model_type === "glm4_moe" ? partial : 1));
  const plain = Array.from({ length: dims / 2 }, (_, i) => theta ** ((-2 * i) / dims));
  const type = scaling.rope_type ?? scaling.type ?? "default";
  const factor = number("factor", 1);
  const original = number("original_max_position_embeddings", config.max_position_embeddings as number);
  const m = (weight: number) => (factor > 1 ? 0.1 * weight * Math.log(factor) + 1 : 1);
  const softmaxFactor =
    type !== "default" && scaling.mscale_all_dim ? m(number("mscale_all_dim", 0)) ** 2 : 1;
  if (type === "linear") return { frequencies: plain.map((f) => f / factor), scale: 1, softmaxFactor };
  if (type === "llama3") {
    const [low, high] = [number("low_freq_factor", 1), number("high_freq_factor", 4)];
    const frequencies = plain.map((f) => {
      const turns = (original * f) / (2 * Math.PI);
      if (turns > high) return f;
      if (turns < low) return f / factor;
      const smooth = (turns - low) / (high - low);
      return (1 - smooth) * (f / factor) + smooth * f;
    });
    return { frequencies, scale: 1, softmaxFactor };
  }
  if (type !== "yarn") return { frequencies: plain, scale: 1, softmaxFactor };
  const dimension = (turns: number) =>
    (dims * Math.log(original / (turns * 2 * Math.PI))) / (2 * Math.log(theta));
  const whole = scaling.truncate !== false;
  const from = dimension(number("beta_fast", 32));
  const to = dimension(number("beta_slow", 1));
  const low = Math.max(0, whole ? Math.floor(from) : from);
  let high = Math.min(dims - 1, whole ? Math.ceil(to) : to);
  if (high === low) high += 0.001;
  const frequencies = plain.map((f, i) => {
    const ramp = Math.min(1, Math.max(0, (i - low) / (high - low)));
    return (f / factor) * ramp + f * (1 - ramp);
  });
  const both = scaling.mscale && scaling.mscale_all_dim;
  const scale = both ? m(number("mscale", 1)) / m(number("mscale_all_dim", 1)) : m(1);
  return { frequencies, scale: number("attention_factor", scale), softmaxFactor };
}

/** Pairs (i, i + half) of the first dimensions; the rest passes. */
function rotateHalf(x: Float64Array, position: number, { frequencies, scale }: OracleRope): Float64Array {
  const out = x.slice();
  const half = frequencies.length;
  for (let i = 0; i < half; i++) {
    const [c, s] = [Math.cos(position * frequencies[i]) * scale, Math.sin(position * frequencies[i]) * scale];
    out[i] = x[i] * c - x[i + half] * s;
    out[i + half] = x[i + half] * c + x[i] * s;
  }
  return out;
}

function rotatePairs(x: Float64Array, position: number, { frequencies, scale }: OracleRope): Float64Array {
  const out = x.slice();
  for (const [i, frequency] of frequencies.entries()) {
    const [c, s] = [Math.cos(position * frequency) * scale, Math.sin(position * frequency) * scale];
    out[2 * i] = x[2 * i] * c - x[2 * i + 1] * s;
    out[2 * i + 1] = x[2 * i + 1] * c + x[2 * i] * s;
  }
  return out;
}

function attend(q: Float64Array, keys: Rows, values: Rows, position: number, scale: number): Float64Array {
  const scores = keys.slice(0, position + 1).map((key) => dot(q, key) * scale);
  const top = Math.max(...scores);
  const weights = scores.map((score) => Math.exp(score - top));
  const total = weights.reduce((a, b) => a + b, 0);
  const out = new Float64Array(values[0].length);
  for (const [s, weight] of weights.entries()) {
    for (let i = 0; i < out.length; i++) out[i] += (weight / total) * values[s][i];
  }
  return out;
}

/** Indices by falling value, the lower index first among equals. */
function order(list: number[]): number[] {
  return list.map((_, i) => i).sort((a, b) => list[b] - list[a] || a - b);
}

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

function multiply(matrix: Float64Array, x: Float64Array): Float64Array {
  const out = new Float64Array(matrix.length / x.length);
  for (let i = 0; i < out.length; i++) out[i] = dot(matrix.subarray(i * x.length, (i + 1) * x.length), x);
  return out;
}

function add(a: Rows, b: Rows): Rows {
  return a.map((row, t) => row.map((value, i) => value + b[t][i]));
}

function split(row: Float64Array, width: number): Rows {
  return Array.from({ length: row.length / width }, (_, h) => row.slice(h * width, (h + 1) * width));
}

function join(parts: Rows): Float64Array {
  return Float64Array.from(parts.flatMap((part) => [...part]));
}
