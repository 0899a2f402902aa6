// Sizes of the KV cache as native/core/kv_layout.h lays it out; test/gpu-node/kv/format.test.ts compares the two.
// The byte order within a page is known to the native side alone, and depends on the backend: use kv_pack and kv_unpack.

/** Tokens per page. */
export const PAGE_TOKENS = 64;

/** Names the byte order of pages; travels with transferred pages. `host`: the CPU backends. */
export const KV_LAYOUT_IDS = { host: 1, cuda: 2 } as const;

/** In the order of the op argument `format`. */
export const KV_FORMATS = ["f32", "bf16", "fp8", "fp8-token"] as const;

export type KvFormat = (typeof KV_FORMATS)[number];

/** What one layer stores per token: GQA keys and values per kv head, or one MLA row of latent and rope. */
export type KvGeometry =
  | { kind: "gqa"; kvHeads: number; headDim: number }
  | { kind: "mla"; kvLora: number; ropeDim: number };

/** The op argument `format`. */
export function kvFormatCode(format: KvFormat): number {
  return KV_FORMATS.indexOf(format);
}

/** The op argument `heads` of kv_pack and kv_unpack. */
export function kvHeadsArgument(geometry: KvGeometry): number {
  return geometry.kind === "gqa" ? geometry.kvHeads : 0;
}

/** Vectors with a scale of their own in fp8-token: the k heads, then the v heads; or the one MLA row. */
export function kvVectors(geometry: KvGeometry): number {
  return geometry.kind === "gqa" ? 2 * geometry.kvHeads : 1;
}

/** Elements per token and layer. */
export function kvElements(geometry: KvGeometry): number {
  if (geometry.kind === "gqa") return 2 * geometry.kvHeads * geometry.headDim;
  return geometry.kvLora + geometry.ropeDim;
}

function elementBytes(format: KvFormat): number {
  if (format === "f32") return 4;
  return format === "bf16" ? 2 : 1;
}

/** Bytes of a page of one layer's pool, `u8 [pages, bytes]`; scales lie apart. */
export function kvPageBytes(format: KvFormat, geometry: KvGeometry): number {
  return PAGE_TOKENS * kvElements(geometry) * elementBytes(format);
}

/** Scales per token in the side array `f32 [pages, 64, scales]`; 0: the format has none. */
export function kvScales(format: KvFormat, geometry: KvGeometry): number {
  return format === "fp8-token" ? kvVectors(geometry) : 0;
}

/** All that a token costs in one layer, scales included; also the bytes of its canonical row (kv_pack, kv_unpack). */
export function kvBytesPerToken(format: KvFormat, geometry: KvGeometry): number {
  return kvElements(geometry) * elementBytes(format) + 4 * kvScales(format, geometry);
}
