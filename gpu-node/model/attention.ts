// Grouped-query attention (arXiv 2305.13245) over the paged cache.
import type { Tensor } from "../native/addon.ts";
import type { WeightLoader } from "../weights/load.ts";
import type { Linear } from "../weights/weight.ts";
import type { StepContext } from "./context.ts";
import type { LayerKv } from "./kv.ts";
import { linear, RmsNorm } from "./layers.ts";
import type { GqaSpec, RopeSpec } from "./spec.ts";
import type { StepBatch } from "./step.ts";

/** x act [T, H] -> [T, H], written to `out`, act or f32. Returns out. */
export interface Attention {
  forward(step: StepContext, x: Tensor, batch: StepBatch, kv: LayerKv, out: Tensor): Tensor;
}

/** x act [T, heads, >= dims]: rotates the dimensions from `begin` on, in place. */
export function rotate({ ops }: StepContext, x: Tensor, begin: number, batch: StepBatch, rope: Rope): void {
  ops.rope({
    x: x.slice(2, begin, begin + rope.spec.dims),
    positions: batch.positions,
    inv_freq: rope.frequencies,
    interleaved: rope.spec.interleaved ? 1 : 0,
    scale: rope.spec.scale,
  });
}

/** A rope with its frequencies, f32 [dims / 2], on the device. */
export interface Rope {
  spec: RopeSpec;
  frequencies: Tensor;
}

export class GqaAttention implements Attention {
  readonly #spec: GqaSpec;
  readonly #rope: Rope;
  readonly #q: Linear;
  readonly #k: Linear;
  readonly #v: Linear;
  readonly #o: Linear;
  readonly #qNorm: RmsNorm | null;
  readonly #kNorm: RmsNorm | null;

  constructor(loader: WeightLoader, name: string, hidden: number, spec: GqaSpec, rope: Rope, eps: number) {
    const { heads, kvHeads, headDim, qkvBias, outputBias, qkNorm } = spec;
    this.#spec = spec;
    this.#rope = rope;
    this.#q = loader.linear(`${name}.q_proj`, heads * headDim, hidden, qkvBias);
    this.#k = loader.linear(`${name}.k_proj`, kvHeads * headDim, hidden, qkvBias);
    this.#v = loader.linear(`${name}.v_proj`, kvHeads * headDim, hidden, qkvBias);
    this.#o = loader.linear(`${name}.o_proj`, hidden, heads * headDim, outputBias);
    this.#qNorm = qkNorm ? new RmsNorm(loader, `${name}.q_norm`, headDim, eps) : null;
    this.#kNorm = qkNorm ? new RmsNorm(loader, `${name}.k_norm`, headDim, eps) : null;
  }

  forward(step: StepContext, x: Tensor, batch: StepBatch, kv: LayerKv, out: Tensor): Tensor {
    const { heads, kvHeads, headDim, softmaxScale } = this.#spec;
    const tokens = x.shape[0];
    const project = (weight: Linear, name: string, count: number) =>
      linear(step, x, weight, step.buffer(name, [tokens, count * headDim])).reshape([tokens, count, headDim]);
    const q = project(this.#q, "q", heads);
    const k = project(this.#k, "k", kvHeads);
    const v = project(this.#v, "v", kvHeads);

    this.#qNorm?.apply(step, q, q);
    this.#kNorm?.apply(step, k, k);
    rotate(step, q, 0, batch, this.#rope);
    rotate(step, k, 0, batch, this.#rope);

    const mixed = step.buffer("attention", [tokens, heads, headDim]);
    const cache = {
      pool: kv.pool,
      scales: kv.tokenScales,
      format: kv.format,
      k_scale: kv.scales.k,
      v_scale: kv.scales.v,
    };
    step.ops.kv_write_gqa({ k, v, ...cache, write_slots: batch.writeSlots, stats: kv.stats });
    step.ops.attention_gqa({
      q,
      k,
      v,
      ...cache,
      page_table: batch.pageTable,
      row_slot: batch.rowSlot,
      row_start: batch.rowStart,
      kv_len: batch.kvLen,
      out: mixed,
      softmax_scale: softmaxScale,
      deterministic: Number(step.deterministic),
    });
    return linear(step, mixed.reshape([tokens, heads * headDim]), this.#o, out);
  }
}
