// The decoder that all families are: embedding, layers of attention and feed-forward around a residual stream, head.
import type { Tensor } from "../native/addon.ts";
import type { WeightLoader } from "../weights/load.ts";
import type { Linear } from "../weights/weight.ts";
import { type Attention, GqaAttention, type Rope } from "./attention.ts";
import type { Activations, StepContext } from "./context.ts";
import { type KvScales, type LayerKv, loadKvScales } from "./kv.ts";
import { type FeedForward, linear, Mlp, RmsNorm } from "./layers.ts";
import { MlaAttention } from "./mla.ts";
import { Moe } from "./moe.ts";
import type { ModelSpec } from "./spec.ts";
import type { StepBatch } from "./step.ts";

interface Layer {
  inputNorm: RmsNorm;
  attention: Attention;
  postNorm: RmsNorm;
  feedForward: FeedForward;
  kvScales: KvScales;
}

export class Decoder {
  readonly #hidden: number;
  readonly #vocab: number;
  readonly #embedding: Tensor;
  readonly #layers: Layer[];
  readonly #norm: RmsNorm;
  readonly #head: Linear;

  constructor(loader: WeightLoader, spec: ModelSpec, activations: Activations) {
    const { hidden, vocab, normEps } = spec;
    const { rope } = spec.attention;
    const frequencies = loader.upload("f32", [rope.dims / 2], rope.inverseFrequencies);
    this.#hidden = hidden;
    this.#vocab = vocab;
    this.#embedding = loader.float("model.embed_tokens.weight", [vocab, hidden]);
    this.#layers = spec.layers.map((_, i) =>
      loadLayer(loader, i, spec, { spec: rope, frequencies }, activations),
    );
    this.#norm = new RmsNorm(loader, "model.norm", hidden, normEps);
    this.#head =
      spec.tiedEmbeddings && !loader.has("lm_head.weight")
        ? { matrix: { kind: "dense", n: vocab, k: hidden, weight: this.#embedding }, bias: null }
        : loader.linear("lm_head", vocab, hidden);
  }

  /** FP8 KV scales per layer, as the checkpoint has them. */
  get kvScales(): KvScales[] {
    return this.#layers.map((layer) => layer.kvScales);
  }

  /** f32 [S, vocab]: logits of the tokens that batch.logitRows picks. */
  forward(step: StepContext, batch: StepBatch, kv: readonly LayerKv[]): Tensor {
    const { ops } = step;
    const shape = [batch.tokens, this.#hidden];
    const residual = step.buffer("residual", shape, "f32");
    const x = step.buffer("x", shape);
    const delta = step.buffer("delta", shape, "f32");

    ops.embedding({ ids: batch.tokenIds, table: this.#embedding, out: residual });
    this.#layers[0].inputNorm.apply(step, residual, x);
    for (const [i, layer] of this.#layers.entries()) {
      layer.attention.forward(step, x, batch, kv[i], delta);
      layer.postNorm.addTo(step, residual, delta, x);
      layer.feedForward.forward(step, x, delta);
      const next = this.#layers[i + 1]?.inputNorm ?? this.#norm;
      next.addTo(step, residual, delta, x);
    }
    const picked = step.buffer("picked", [batch.samples, this.#hidden]);
    ops.gather_rows({ x, index: batch.logitRows, out: picked });
    return linear(step, picked, this.#head, step.buffer("logits", [batch.samples, this.#vocab], "f32"));
  }
}

function loadLayer(
  loader: WeightLoader,
  index: number,
  spec: ModelSpec,
  rope: Rope,
  activations: Activations,
): Layer {
  const { hidden, normEps, attention } = spec;
  const name = `model.layers.${index}`;
  const feedForward = spec.layers[index];
  return {
    inputNorm: new RmsNorm(loader, `${name}.input_layernorm`, hidden, normEps),
    attention:
      attention.kind === "mla"
        ? new MlaAttention(loader, `${name}.self_attn`, hidden, attention, rope, activations)
        : new GqaAttention(loader, `${name}.self_attn`, hidden, attention, rope, normEps),
    postNorm: new RmsNorm(loader, `${name}.post_attention_layernorm`, hidden, normEps),
    feedForward:
      feedForward.kind === "moe"
        ? new Moe(loader, `${name}.mlp`, hidden, feedForward)
        : new Mlp(loader, `${name}.mlp`, hidden, feedForward),
    kvScales: loadKvScales(loader, `${name}.self_attn`),
  };
}
