// What a model is, read from config.json and checked: all that building and running it needs to know.
import type { QuantizationSpec } from "../weights/quantization.ts";

/** Rotary position embedding over `dims` of a head's dimensions. */
export interface RopeSpec {
  dims: number;
  /** [dims / 2] radians per position */
  inverseFrequencies: Float32Array;
  /** Factor on cos and sin (yarn's attention_factor). */
  scale: number;
  /** Pairs are (2i, 2i + 1) instead of (i, i + dims / 2). */
  interleaved: boolean;
}

/** Grouped-query attention. */
export interface GqaSpec {
  kind: "gqa";
  heads: number;
  kvHeads: number;
  headDim: number;
  qkvBias: boolean;
  outputBias: boolean;
  /** RMSNorm over each head of q and k. */
  qkNorm: boolean;
  softmaxScale: number;
  /** Rotary dimensions are the first `rope.dims` of a head. */
  rope: RopeSpec;
}

/** Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). */
export interface MlaSpec {
  kind: "mla";
  heads: number;
  /** Width of the query's low-rank projection; null: projected directly. */
  qLora: number | null;
  kvLora: number;
  nopeDim: number;
  ropeDim: number;
  valueDim: number;
  bias: boolean;
  softmaxScale: number;
  /** Epsilon of the norms of both latents. */
  latentEps: number;
  rope: RopeSpec;
}

export interface MlpSpec {
  kind: "mlp";
  intermediate: number;
  bias: boolean;
}

export interface MoeSpec {
  kind: "moe";
  experts: number;
  perToken: number;
  intermediate: number;
  /** Width of the expert that every token passes; 0: none. */
  sharedIntermediate: number;
  scoring: "softmax" | "sigmoid";
  /** A bias on the scores that counts for the choice alone. */
  correctionBias: boolean;
  groups: number;
  topGroups: number;
  normalize: boolean;
  scale: number;
}

export interface ModelSpec {
  family: string;
  architecture: string;
  hidden: number;
  vocab: number;
  maxPositions: number;
  normEps: number;
  tiedEmbeddings: boolean;
  attention: GqaSpec | MlaSpec;
  /** One per layer. */
  layers: (MlpSpec | MoeSpec)[];
  /** In front of every tensor name of the language model. */
  weightPrefix: string;
  /** Tensors of the checkpoint that are known and not used: vision towers, draft (MTP) layers. */
  ignoredTensors: (name: string) => boolean;
  quantization: QuantizationSpec;
}
