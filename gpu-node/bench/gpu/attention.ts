// Decode attention over a paged cache with random page tables: one new token per row.
import {
  type KvFormat,
  type KvGeometry,
  kvBytesPerToken,
  kvFormatCode,
  kvHeadsArgument,
  kvPageBytes,
  kvScales,
  PAGE_TOKENS,
} from "../../kv/format.ts";
import type { Tensor } from "../../native/addon.ts";
import type { OpDevice } from "../../native/device.ts";
import {
  type BenchMemory,
  copiesFor,
  floatsOn,
  type KernelShape,
  moved,
  type Prepared,
  rmsError,
} from "./shape.ts";

export interface DecodeAttention {
  batch: number;
  context: number;
  heads: number;
  geometry: KvGeometry;
  format: KvFormat;
  targetUs?: number;
  peerUs?: number;
}

/** Softmax over scores of about 1, which the random queries and keys below have. */
const SOFTMAX_SCALE = 0.02;
const STATIC = { scale: 1, k_scale: 1, v_scale: 1 };

export function attentionShape(a: DecodeAttention): KernelShape {
  const { batch, context, heads, geometry, format, targetUs, peerUs } = a;
  const mla = geometry.kind === "mla";
  const [qk, v] = mla
    ? [geometry.kvLora + geometry.ropeDim, geometry.kvLora]
    : [geometry.headDim, geometry.headDim];
  const what = mla ? `mla ${heads} heads` : `gqa ${heads}q/${geometry.kvHeads}kv hd${qk}`;
  const peer = mla
    ? undefined
    : ({ kind: "attention", batch, heads, kvHeads: geometry.kvHeads, dim: qk, context } as const);
  return {
    group: mla ? "mla" : "gqa",
    name: `${what} ${format} ${batch} x ${context}`,
    bytes: batch * (context * kvBytesPerToken(format, geometry) + 2 * heads * (qk + v)),
    flops: 2 * batch * heads * context * (qk + v),
    targetUs,
    peerUs,
    peer: format === "bf16" ? peer : undefined,
    prepare: (memory, cold) => new AttentionBuffers(memory, a, { qk, v }, cold),
  };
}

class AttentionBuffers implements Prepared {
  readonly copies: number;
  readonly #memory: BenchMemory;
  readonly #a: DecodeAttention;
  readonly #pool: Tensor;
  readonly #scales: Tensor | null;
  readonly #tables: { host: Int32Array; device: Tensor }[];
  readonly #q: Tensor;
  /** The new tokens: MLA rows, or keys and values. */
  readonly #fresh: Tensor[];
  readonly #out: Tensor;
  readonly #rows: { row_slot: Tensor; row_start: Tensor; kv_len: Tensor };

  constructor(memory: BenchMemory, a: DecodeAttention, width: { qk: number; v: number }, cold: number) {
    const { batch, context, heads, geometry, format } = a;
    this.#memory = memory;
    this.#a = a;
    this.copies = copiesFor(batch * context * kvBytesPerToken(format, geometry), cold);
    const perRow = Math.ceil(context / PAGE_TOKENS);
    const perCopy = batch * perRow;
    const pages = 1 + this.copies * perCopy;
    const poolShape = [pages, kvPageBytes(format, geometry)];
    this.#pool =
      format === "bf16" ? memory.random("bf16", poolShape, "u8") : memory.random("e4m3", poolShape, "u8");
    const scales = kvScales(format, geometry);
    this.#scales = scales > 0 ? memory.constant("f32", [pages, PAGE_TOKENS, scales], 0.75) : null;
    const order = memory.permutation(1, pages - 1);
    this.#tables = Array.from({ length: this.copies }, (_, copy) => {
      const host = order.slice(copy * perCopy, (copy + 1) * perCopy);
      return { host, device: memory.i32([batch, perRow], host) };
    });
    this.#q = memory.random("bf16", [batch, heads, width.qk]);
    this.#fresh =
      geometry.kind === "mla"
        ? [memory.random("bf16", [batch, width.qk])]
        : [0, 1].map(() => memory.random("bf16", [batch, geometry.kvHeads, geometry.headDim]));
    this.#out = memory.device.alloc("bf16", [batch, heads, width.v]);
    this.#rows = rowsOf(memory.device, batch, context);
  }

  call(i: number): void {
    const { device } = this.#memory;
    const table = this.#tables[i % this.copies].device;
    attend(device, this.#a, this.#pool, this.#scales, table, this.#rows, this.#q, this.#fresh, this.#out);
  }

  /** The last row over the pages of set 0: two heads of MLA, all of GQA, whose heads share keys. */
  check(reference: OpDevice) {
    const { device } = this.#memory;
    const { batch, context, geometry, format, heads } = this.#a;
    const row = batch - 1;
    this.call(0);
    const picked = geometry.kind === "mla" ? [...new Set([0, heads - 1])] : null;
    const perRow = Math.ceil(context / PAGE_TOKENS);
    const pool = reference.alloc("u8", [perRow + 1, kvPageBytes(format, geometry)]);
    const count = kvScales(format, geometry);
    const scales = count > 0 ? reference.alloc("f32", [perRow + 1, PAGE_TOKENS, count]) : null;
    this.#copyRow(reference, row, pool, scales);
    const table = reference.fromHost(
      "i32",
      [1, perRow],
      Int32Array.from({ length: perRow }, (_, i) => i + 1),
    );
    const rows = rowsOf(reference, 1, context);
    const fresh = this.#fresh.map((tensor) => moved(device, reference, tensor.slice(0, row, row + 1)));
    const all = [0, heads] as const;
    const parts = (picked?.map((head) => [head, head + 1] as const) ?? [all]).map(([begin, end]) => {
      const of = (tensor: Tensor) => tensor.slice(0, row, row + 1).slice(1, begin, end);
      const q = moved(device, reference, of(this.#q));
      const out = reference.alloc("bf16", [1, end - begin, this.#out.shape[2]]);
      attend(reference, this.#a, pool, scales, table, rows, q, fresh, out);
      return { got: floatsOn(device, of(this.#out)), wanted: floatsOn(reference, out) };
    });
    const joined = (key: "got" | "wanted") => Float32Array.from(parts.flatMap((part) => [...part[key]]));
    return rmsError(joined("got"), joined("wanted"));
  }

  /** The row's stored tokens, in canonical order, to pages 1, 2, .. of the reference's pool. */
  #copyRow(reference: OpDevice, row: number, pool: Tensor, scales: Tensor | null): void {
    const { device } = this.#memory;
    const { context, geometry, format } = this.#a;
    const perRow = Math.ceil(context / PAGE_TOKENS);
    const pages = this.#tables[0].host.subarray(row * perRow);
    const slot = (page: number, token: number) => page * PAGE_TOKENS + (token % PAGE_TOKENS);
    const common = { format: kvFormatCode(format), heads: kvHeadsArgument(geometry) };
    const past = context - 1;
    if (past === 0) return;
    const from = Int32Array.from({ length: past }, (_, t) => slot(pages[Math.floor(t / PAGE_TOKENS)], t));
    const to = Int32Array.from({ length: past }, (_, t) => slot(1 + Math.floor(t / PAGE_TOKENS), t));
    const rows = device.alloc("u8", [past, kvBytesPerToken(format, geometry)]);
    const source = { pool: this.#pool, scales: this.#scales, slots: device.fromHost("i32", [past], from) };
    device.ops.kv_unpack({ ...source, rows, ...common });
    const target = { pool, scales, slots: reference.fromHost("i32", [past], to) };
    reference.ops.kv_pack({ ...target, rows: moved(device, reference, rows), ...common });
  }
}

function rowsOf(device: OpDevice, batch: number, context: number) {
  const i32 = (list: number[]) => device.fromHost("i32", [list.length], Int32Array.from(list));
  const count = (n: number) => Array.from({ length: n }, (_, i) => i);
  return {
    row_slot: i32(count(batch)),
    row_start: i32(count(batch + 1)),
    kv_len: i32(count(batch).map(() => context)),
  };
}

function attend(
  device: OpDevice,
  { geometry, format }: DecodeAttention,
  pool: Tensor,
  scales: Tensor | null,
  page_table: Tensor,
  rows: ReturnType<typeof rowsOf>,
  q: Tensor,
  fresh: Tensor[],
  out: Tensor,
): void {
  const common = { q, pool, scales, page_table, ...rows, out, softmax_scale: SOFTMAX_SCALE };
  const { scale, k_scale, v_scale } = STATIC;
  const rest = { ...common, format: kvFormatCode(format), deterministic: 0 };
  if (geometry.kind === "mla") device.ops.attention_mla({ ...rest, latent: fresh[0], scale });
  else device.ops.attention_gqa({ ...rest, k: fresh[0], v: fresh[1], k_scale, v_scale });
}
