// What the case tables of the page-tag ops share: a small world of pages and grants that agree.
import { pageTag, TAG_LAYOUT as T, wide } from "../../gpu-node/kv/tag-layout.ts";
import { values } from "./harness.ts";

export const SECRET = [0x12345678, -0x76543210];

export const low = (x: bigint) => Number(BigInt.asIntN(32, x));
export const high = (x: bigint) => Number(BigInt.asIntN(32, x >> 32n));

export function tagOf(page: number, generation: number, salt: number[]): [number, number] {
  const tag = pageTag(wide(SECRET[0], SECRET[1]), page, generation, wide(salt[0], salt[1]));
  return [low(tag), high(tag)];
}

/** A page that was issued to the account and got `written` tokens. */
export function pageRecord(page: number, generation: number, salt: number[], written = 0): number[] {
  return [...tagOf(page, generation, salt), generation, salt[0], written, 0, 0, 0];
}

export function expectedRecord(page: number, generation: number, salt: number[], epoch: number): number[] {
  return [page, ...tagOf(page, generation, salt), generation, salt[0], epoch, 0, 0];
}

export const i32 = (shape: number[], data: ArrayLike<number>) =>
  ({ dtype: "i32", shape, fill: values(Array.from(data)) }) as const;

/** Updates as the op takes them, with `room` for more. */
export function updatesOf(records: number[][], room = 0): number[] {
  const words = new Array(T.update_words * (records.length + 1 + room)).fill(0);
  words[0] = records.length;
  records.forEach((record, i) => {
    words.splice(T.update_words * (i + 1), record.length, ...record);
  });
  return words;
}
