// Golden answers beside a checkpoint: golden.safetensors (input_ids [T], logits [T, vocab]) and golden.json.
import { closeSync, existsSync, fstatSync, openSync, readFileSync, readSync } from "node:fs";
import { CheckpointError } from "../weights/errors.ts";
import { isObject } from "../weights/json.ts";
import { aligned, floatsOf } from "../weights/numeric.ts";
import { type ByteSource, readSafetensorsHeader, type TensorEntry } from "../weights/safetensors.ts";

export interface Golden {
  tokens: Int32Array;
  /** [T * vocab] */
  logits: Float32Array;
  vocab: number;
}

/** Throws CheckpointError when the file is damaged or holds something else. */
export function readGolden(path: string): Golden {
  return withFile(path, (source) => {
    const entries = new Map(readSafetensorsHeader(source, path).map((entry) => [entry.name, entry]));
    const tokens = readTokens(entries.get("input_ids"), source, path);
    const logits = entries.get("logits");
    if (logits?.dtype !== "F32" || logits.shape.length !== 2 || logits.shape[0] !== tokens.length) {
      throw new CheckpointError("size_mismatch", path, `logits must be F32 [${tokens.length}, vocab]`);
    }
    const values = floatsOf("F32", source.read(logits.begin, logits.end));
    return { tokens, logits: values, vocab: logits.shape[1] };
  });
}

/** input_ids alone. */
export function readGoldenTokens(path: string): Int32Array {
  return withFile(path, (source) => {
    const entry = readSafetensorsHeader(source, path).find(({ name }) => name === "input_ids");
    return readTokens(entry, source, path);
  });
}

export interface GreedyGolden {
  continuation: number[];
  /** Distance of each chosen token's logit to the next best, in the reference. */
  margins: number[];
}

export function readGreedyGolden(path: string): GreedyGolden {
  if (!existsSync(path)) throw new CheckpointError("not_a_checkpoint", path, "is not there");
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    throw new CheckpointError("bad_config", path, error instanceof Error ? error.message : String(error));
  }
  const numbers = (list: unknown) => Array.isArray(list) && list.every((item) => typeof item === "number");
  if (!isObject(value) || !numbers(value.greedy_continuation)) {
    throw new CheckpointError("bad_config", path, "greedy_continuation must be a list of token ids");
  }
  const margins = numbers(value.greedy_margins) ? (value.greedy_margins as number[]) : [];
  return { continuation: value.greedy_continuation as number[], margins };
}

function readTokens(entry: TensorEntry | undefined, source: ByteSource, path: string): Int32Array {
  const usable = entry?.shape.length === 1 && ["I32", "I64"].includes(entry.dtype) && entry.shape[0] > 0;
  if (!usable) throw new CheckpointError("size_mismatch", path, "input_ids must be I32 or I64 [tokens]");
  const bytes = aligned(source.read(entry.begin, entry.end));
  return entry.dtype === "I32" ? new Int32Array(bytes) : Int32Array.from(new BigInt64Array(bytes), Number);
}

function withFile<T>(path: string, use: (source: ByteSource) => T): T {
  if (!existsSync(path)) throw new CheckpointError("not_a_checkpoint", path, "is not there");
  const file = openSync(path, "r");
  try {
    const read = (begin: number, end: number) => {
      const bytes = new Uint8Array(end - begin);
      const got = readSync(file, bytes, 0, bytes.length, begin);
      if (got !== bytes.length)
        throw new CheckpointError("truncated", path, `ends inside bytes ${begin} to ${end}`);
      return bytes;
    };
    return use({ bytes: fstatSync(file).size, read });
  } finally {
    closeSync(file);
  }
}
