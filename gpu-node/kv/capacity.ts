// How many tokens fit into a KV cache of a given size, by format.
import type { ModelSpec } from "../model/spec.ts";
import { type KvFormat, type KvGeometry, kvBytesPerToken, PAGE_TOKENS } from "./format.ts";

export interface Capacity {
  format: KvFormat;
  /** Over all layers, scales included. */
  bytesPerToken: number;
  /** In a billion bytes, whole pages only. */
  tokensPerGb: number;
  /** In the pool. Its null page comes on top. */
  poolTokens: number;
  poolPages: number;
  /** Tokens per byte, bf16 being 1. */
  timesBf16: number;
}

const GB = 1e9;

/** @param poolBytes memory of the pools of all layers together */
export function capacity(
  format: KvFormat,
  geometry: KvGeometry,
  layers: number,
  poolBytes: number,
): Capacity {
  const perToken = (of: KvFormat) => layers * kvBytesPerToken(of, geometry);
  const bytesPerToken = perToken(format);
  const pagesIn = (bytes: number) => Math.floor(bytes / (PAGE_TOKENS * bytesPerToken));
  const poolPages = pagesIn(poolBytes);
  return {
    format,
    bytesPerToken,
    tokensPerGb: PAGE_TOKENS * pagesIn(GB),
    poolTokens: PAGE_TOKENS * poolPages,
    poolPages,
    timesBf16: perToken("bf16") / bytesPerToken,
  };
}

/** Sequences of the model's longest length that fit at a time; below 1 not even one does. */
export function longestSequences({ poolTokens }: Capacity, { maxPositions }: ModelSpec): number {
  return poolTokens / maxPositions;
}
