// Strict reader of the safetensors header (format: github.com/huggingface/safetensors, "Format").
//
//   [ u64 header length n | n bytes of JSON | data ]
//     JSON: name -> { dtype, shape, data_offsets: [begin, end) in data }, and "__metadata__"
//
// A file is accepted only when its tensors tile the data exactly: no overlap, no hole, nothing behind the last one.
// Nothing is allocated before the length it depends on has been checked against the file.
import { CheckpointError, type CheckpointErrorCode } from "./errors.ts";
import { isObject, parseStrictJson } from "./json.ts";

/** Bytes per element of every dtype of the format with whole bytes. */
export const STORED_DTYPES = {
  F64: 8,
  F32: 4,
  F16: 2,
  BF16: 2,
  F8_E4M3: 1,
  F8_E5M2: 1,
  F8_E8M0: 1,
  I64: 8,
  I32: 4,
  I16: 2,
  I8: 1,
  U64: 8,
  U32: 4,
  U16: 2,
  U8: 1,
  BOOL: 1,
} as const;

export type StoredDType = keyof typeof STORED_DTYPES;

/** Random access to a file; a MappedFile is one. */
export interface ByteSource {
  readonly bytes: number;
  read(begin: number, end: number): Uint8Array;
}

export interface TensorEntry {
  name: string;
  dtype: StoredDType;
  shape: number[];
  /** Bytes [begin, end) of the file. */
  begin: number;
  end: number;
}

export const MAX_HEADER_BYTES = 100_000_000;
const MAX_RANK = 8;

/** Reads and checks the header of `source`; `where` names the file in errors. Throws CheckpointError. */
export function readSafetensorsHeader(source: ByteSource, where: string): TensorEntry[] {
  const fail = (code: CheckpointErrorCode, what: string) => new CheckpointError(code, where, what);
  if (source.bytes < 8) throw fail("truncated", `${source.bytes} bytes are too few for a header`);
  const head = source.read(0, 8);
  const length = new DataView(head.buffer, head.byteOffset, 8).getBigUint64(0, true);
  if (length > BigInt(MAX_HEADER_BYTES)) {
    throw fail("header_too_large", `a header of ${length} bytes is above the limit of ${MAX_HEADER_BYTES}`);
  }
  const dataBegin = 8 + Number(length);
  if (dataBegin > source.bytes) {
    throw fail("truncated", `the header ends at byte ${dataBegin}, the file at ${source.bytes}`);
  }
  const header = parseHeader(source.read(8, dataBegin), fail);
  const entries: TensorEntry[] = [];
  for (const [name, value] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    entries.push(readEntry(name, value, dataBegin, source.bytes, fail));
  }
  checkTiling(entries, dataBegin, source.bytes, fail);
  return entries;
}

type Fail = (code: CheckpointErrorCode, what: string) => CheckpointError;

function parseHeader(bytes: Uint8Array, fail: Fail): Record<string, unknown> {
  let header: unknown;
  try {
    header = parseStrictJson(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    const what = error instanceof Error ? error.message : String(error);
    throw fail(what.includes("appears twice") ? "duplicate_tensor" : "bad_header", `header: ${what}`);
  }
  if (!isObject(header)) throw fail("bad_header", "the header is not a JSON object");
  return header;
}

function readEntry(
  name: string,
  value: unknown,
  dataBegin: number,
  fileBytes: number,
  fail: Fail,
): TensorEntry {
  if (!isObject(value)) throw fail("bad_header", `tensor ${name}: not an object`);
  const { dtype, shape, data_offsets: offsets } = value;
  if (typeof dtype !== "string" || !Object.hasOwn(STORED_DTYPES, dtype)) {
    throw fail("unknown_dtype", `tensor ${name}: dtype ${JSON.stringify(dtype)} is none of the known ones`);
  }
  if (!Array.isArray(shape) || shape.length > MAX_RANK || !shape.every(isCount)) {
    throw fail("bad_header", `tensor ${name}: shape is not a list of at most ${MAX_RANK} sizes`);
  }
  if (!Array.isArray(offsets) || offsets.length !== 2 || !offsets.every(isCount)) {
    throw fail("bad_header", `tensor ${name}: data_offsets is not a pair of sizes`);
  }
  const [begin, end] = offsets as [number, number];
  if (begin > end || end > fileBytes - dataBegin) {
    throw fail(
      "offsets_out_of_range",
      `tensor ${name}: bytes [${begin}, ${end}) of ${fileBytes - dataBegin} bytes of data`,
    );
  }
  const known = dtype as StoredDType;
  const bytes = byteSize(shape as number[], STORED_DTYPES[known]);
  if (bytes === null) throw fail("shape_overflow", `tensor ${name}: shape [${shape.join(", ")}] overflows`);
  if (bytes !== end - begin) {
    throw fail("size_mismatch", `tensor ${name}: ${dtype}[${shape.join(", ")}] in ${end - begin} bytes`);
  }
  return { name, dtype: known, shape: shape as number[], begin: dataBegin + begin, end: dataBegin + end };
}

function isCount(value: unknown): boolean {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}

/** Bytes of a tensor, or null above 2^53. */
function byteSize(shape: number[], elementBytes: number): number | null {
  let bytes = elementBytes;
  for (const size of shape) {
    bytes *= size;
    if (bytes > Number.MAX_SAFE_INTEGER) return null;
  }
  return bytes;
}

function checkTiling(entries: TensorEntry[], dataBegin: number, fileBytes: number, fail: Fail): void {
  let position = dataBegin;
  let previous = "the header";
  for (const entry of [...entries].sort((a, b) => a.begin - b.begin || a.end - b.end)) {
    if (entry.begin < position) throw fail("offsets_overlap", `tensor ${entry.name} overlaps ${previous}`);
    if (entry.begin > position) {
      throw fail(
        "hole_in_data",
        `${entry.begin - position} bytes between ${previous} and tensor ${entry.name}`,
      );
    }
    position = entry.end;
    previous = `tensor ${entry.name}`;
  }
  if (position !== fileBytes) {
    throw fail("hole_in_data", `${fileBytes - position} bytes behind ${previous} belong to no tensor`);
  }
}
