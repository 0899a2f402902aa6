// The KV cache of a model: per layer one pool of pages, and the scales that FP8 is stored with.
import {
  type KvFormat,
  type KvGeometry,
  kvFormatCode,
  kvPageBytes,
  kvScales,
  PAGE_TOKENS,
} from "../kv/format.ts";
import type { Device, Tensor } from "../native/addon.ts";
import type { WeightLoader } from "../weights/load.ts";
import type { GqaSpec, MlaSpec } from "./spec.ts";

/** Static scales of a layer's FP8 KV: value / scale is stored. MLA has one scale, `k`, for its latent row. */
export interface KvScales {
  k: number;
  v: number;
}

/** What the attention of a layer reads and writes. */
export interface LayerKv {
  /** u8 [pages, page bytes] */
  pool: Tensor;
  /** f32 [pages, 64, vectors] in the format fp8-token */
  tokenScales: Tensor | null;
  /** i32 [2]: saturated values and NaNs so far, of all layers */
  stats: Tensor;
  /** The ops' argument `format`. */
  format: number;
  scales: KvScales;
}

export function kvGeometry(attention: GqaSpec | MlaSpec): KvGeometry {
  if (attention.kind === "gqa") {
    return { kind: "gqa", kvHeads: attention.kvHeads, headDim: attention.headDim };
  }
  return { kind: "mla", kvLora: attention.kvLora, ropeDim: attention.ropeDim };
}

/** Allocates the pools of all layers for `pages` pages, the null page 0 included. */
export function allocateKv(
  device: Pick<Device, "alloc">,
  geometry: KvGeometry,
  format: KvFormat,
  pages: number,
  scales: readonly KvScales[],
): LayerKv[] {
  const perToken = kvScales(format, geometry);
  const stats = device.alloc("i32", [2]);
  return scales.map((layer) => ({
    pool: device.alloc("u8", [pages, kvPageBytes(format, geometry)]),
    tokenScales: perToken ? device.alloc("f32", [pages, PAGE_TOKENS, perToken]) : null,
    stats,
    format: kvFormatCode(format),
    scales: layer,
  }));
}

/**
 * The scales of a layer under the names that quantizers write (as vLLM maps them); 1 where there is none. `name` is the
 * attention module.
 */
export function loadKvScales(loader: WeightLoader, name: string): KvScales {
  const both = loader.scalar([`${name}.kv_scale`]) ?? 1;
  const named = (x: string) => [
    `${name}.${x}_scale`,
    `${name}.${x}_proj.${x}_scale`,
    `${name}.qkv_proj.${x}_scale`,
    `${name}.${x}_cache.scale`,
  ];
  return { k: loader.scalar(named("k")) ?? both, v: loader.scalar(named("v")) ?? both };
}
