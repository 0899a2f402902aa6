// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). The cache holds one row per token, [latent | rope], for
// all heads. kv_b_proj [heads * (nope + value), latent] would expand a latent to every head's key and value; the two
// exact forms differ in where it is applied:
//   absorbed   q_nope is taken to latent space, attention runs over latents, its result is taken to value space
//   expanded   the latents of the context are taken to keys and values inside the attention op
import type { DType, Tensor } from "../native/addon.ts";
import type { WeightLoader } from "../weights/load.ts";
import type { Linear } from "../weights/weight.ts";
import { type Attention, type Rope, rotate } from "./attention.ts";
import type { Activations, StepContext } from "./context.ts";
import type { LayerKv } from "./kv.ts";
import { linear, RmsNorm } from "./layers.ts";
import type { MlaSpec } from "./spec.ts";
import type { StepBatch } from "./step.ts";

/** kv_b_proj per head, dequantized. */
interface UpProjection {
  /** [heads, nope + value, latent] for the expanded form */
  expand: Tensor;
  /** [heads, latent, nope]: the key part, transposed */
  absorbQuery: Tensor;
  /** [heads, value, latent] */
  absorbValue: Tensor;
}

export class MlaAttention implements Attention {
  readonly #spec: MlaSpec;
  readonly #rope: Rope;
  /** The query's low-rank projection and its norm. */
  readonly #qA: { down: Linear; norm: RmsNorm; width: number } | null;
  readonly #q: Linear;
  readonly #kvA: Linear;
  readonly #kvNorm: RmsNorm;
  readonly #up: UpProjection;
  readonly #o: Linear;

  constructor(
    loader: WeightLoader,
    name: string,
    hidden: number,
    spec: MlaSpec,
    rope: Rope,
    activations: Activations,
  ) {
    const { heads, qLora, kvLora, nopeDim, ropeDim, valueDim, bias, latentEps } = spec;
    const queryWidth = heads * (nopeDim + ropeDim);
    this.#spec = spec;
    this.#rope = rope;
    this.#qA = qLora
      ? {
          down: loader.linear(`${name}.q_a_proj`, qLora, hidden, bias),
          norm: new RmsNorm(loader, `${name}.q_a_layernorm`, qLora, latentEps),
          width: qLora,
        }
      : null;
    this.#q = qLora
      ? loader.linear(`${name}.q_b_proj`, queryWidth, qLora)
      : loader.linear(`${name}.q_proj`, queryWidth, hidden);
    this.#kvA = loader.linear(`${name}.kv_a_proj_with_mqa`, kvLora + ropeDim, hidden, bias);
    this.#kvNorm = new RmsNorm(loader, `${name}.kv_a_layernorm`, kvLora, latentEps);
    this.#up = loadUpProjection(loader, `${name}.kv_b_proj`, spec, activations);
    this.#o = loader.linear(`${name}.o_proj`, hidden, heads * valueDim, bias);
  }

  forward(step: StepContext, x: Tensor, batch: StepBatch, kv: LayerKv, out: Tensor): Tensor {
    const { heads, kvLora, nopeDim, ropeDim, valueDim } = this.#spec;
    const tokens = x.shape[0];

    const compressed = this.#compressQuery(step, x);
    const flat = linear(step, compressed, this.#q, step.buffer("q", [tokens, heads * (nopeDim + ropeDim)]));
    const q = flat.reshape([tokens, heads, nopeDim + ropeDim]);
    rotate(step, q, nopeDim, batch, this.#rope);

    // The row of the cache, finished in place: [ normalized latent | rotated rope ].
    const latent = linear(step, x, this.#kvA, step.buffer("latent", [tokens, kvLora + ropeDim]));
    const latentPart = latent.slice(1, 0, kvLora);
    this.#kvNorm.apply(step, latentPart, latentPart);
    rotate(step, latent.splitLast([1, kvLora + ropeDim]), kvLora, batch, this.#rope);

    const { pool, tokenScales: scales, stats, format } = kv;
    const scale = kv.scales.k;
    step.ops.kv_write_mla({ latent, pool, scales, write_slots: batch.writeSlots, stats, format, scale });

    const mixed = step.buffer("attention", [tokens, heads, valueDim]);
    if (!step.deterministic && expandedIsCheaper(this.#spec, batch))
      this.#expanded(step, q, latent, batch, kv, mixed);
    else this.#absorbed(step, q, latent, batch, kv, mixed);
    return linear(step, mixed.reshape([tokens, heads * valueDim]), this.#o, out);
  }

  #compressQuery(step: StepContext, x: Tensor): Tensor {
    if (!this.#qA) return x;
    const { down, norm, width } = this.#qA;
    const compressed = linear(step, x, down, step.buffer("compressed q", [x.shape[0], width]));
    return norm.apply(step, compressed, compressed);
  }

  #absorbed(step: StepContext, q: Tensor, latent: Tensor, batch: StepBatch, kv: LayerKv, out: Tensor): void {
    const { heads, kvLora, nopeDim, ropeDim } = this.#spec;
    const tokens = q.shape[0];
    const { ops } = step;
    // [ q_nope in latent space | q_rope ]
    const wide = step.buffer("absorbed q", [tokens, heads, kvLora + ropeDim]);
    ops.head_linear({ x: q.slice(2, 0, nopeDim), w: this.#up.absorbQuery, out: wide.slice(2, 0, kvLora) });
    ops.cast({ x: q.slice(2, nopeDim, nopeDim + ropeDim), out: wide.slice(2, kvLora, kvLora + ropeDim) });
    const mixed = step.buffer("latent attention", [tokens, heads, kvLora]);
    const deterministic = Number(step.deterministic);
    ops.attention_mla({ q: wide, latent, ...this.#context(batch, kv), out: mixed, deterministic });
    ops.head_linear({ x: mixed, w: this.#up.absorbValue, out });
  }

  #expanded(step: StepContext, q: Tensor, latent: Tensor, batch: StepBatch, kv: LayerKv, out: Tensor): void {
    step.ops.attention_mla_expanded({ q, latent, kv_up: this.#up.expand, ...this.#context(batch, kv), out });
  }

  #context(batch: StepBatch, kv: LayerKv) {
    return {
      pool: kv.pool,
      scales: kv.tokenScales,
      page_table: batch.pageTable,
      row_slot: batch.rowSlot,
      row_start: batch.rowStart,
      kv_len: batch.kvLen,
      softmax_scale: this.#spec.softmaxScale,
      format: kv.format,
      scale: kv.scales.k,
    };
  }
}

/**
 * Compares multiply-adds per head. The absorbed form pays for each query, twice the latent per pair of tokens; the
 * expanded form pays for each token of each row's context, and less per pair:
 *   absorbed   T L (nope + v) + T C (2 L + rope)      T queries, R rows, C longest context, L latent
 *   expanded   R C L (nope + v) + T C (nope + rope + v)
 */
export function expandedIsCheaper(
  spec: Pick<MlaSpec, "kvLora" | "nopeDim" | "ropeDim" | "valueDim">,
  { tokens, rows, maxKvLen }: Pick<StepBatch, "tokens" | "rows" | "maxKvLen">,
): boolean {
  const { kvLora, nopeDim, ropeDim, valueDim } = spec;
  const project = kvLora * (nopeDim + valueDim);
  const absorbed = tokens * project + tokens * maxKvLen * (2 * kvLora + ropeDim);
  const expanded = rows * maxKvLen * project + tokens * maxKvLen * (nopeDim + ropeDim + valueDim);
  return tokens > rows && expanded < absorbed; // a decode step never
}

function loadUpProjection(
  loader: WeightLoader,
  name: string,
  { heads, kvLora, nopeDim, valueDim }: MlaSpec,
  activations: Activations,
): UpProjection {
  const perHead = nopeDim + valueDim;
  const { values, dtype } = loader.values(name, heads * perHead, kvLora);
  const kept = keptDType(dtype, activations);
  // rows of a head:  [ key part: 0 .. nope | value part: nope .. nope + value ], each of kvLora columns
  const absorbQuery = new Float32Array(values.length && heads * kvLora * nopeDim);
  const absorbValue = new Float32Array(values.length && heads * valueDim * kvLora);
  for (let h = 0; values.length && h < heads; h++) {
    const head = values.subarray(h * perHead * kvLora, (h + 1) * perHead * kvLora);
    const transposed = absorbQuery.subarray(h * kvLora * nopeDim, (h + 1) * kvLora * nopeDim);
    for (let d = 0; d < nopeDim; d++) {
      for (let l = 0; l < kvLora; l++) transposed[l * nopeDim + d] = head[d * kvLora + l];
    }
    absorbValue.set(head.subarray(nopeDim * kvLora), h * valueDim * kvLora);
  }
  return {
    expand: loader.upload(kept, [heads, perHead, kvLora], values),
    absorbQuery: loader.upload(kept, [heads, kvLora, nopeDim], absorbQuery),
    absorbValue: loader.upload(kept, [heads, valueDim, kvLora], absorbValue),
  };
}

/** bf16 where it is exact or where activations are bf16 as well; f32 activations must see the stored values. */
function keptDType(stored: DType, activations: Activations): "f32" | "bf16" {
  return activations === "bf16" || stored === "bf16" ? "bf16" : "f32";
}
