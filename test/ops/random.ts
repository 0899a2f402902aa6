// Seeded test data.
import type { DType } from "../../gpu-node/native/addon.ts";
import { roundTo } from "./formats.ts";

/** splitmix32: small, seedable, good enough for test data. */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed | 0;
  }

  /** Uniform in [0, 1). */
  next(): number {
    this.#state = (this.#state + 0x9e3779b9) | 0;
    let z = this.#state;
    z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
    z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
    return ((z ^ (z >>> 15)) >>> 0) / 2 ** 32;
  }

  normal(): number {
    return Math.sqrt(-2 * Math.log(1 - this.next())) * Math.cos(2 * Math.PI * this.next());
  }
}

/** Makes `count` values. */
export type Fill = (count: number, random: Random) => ArrayLike<number>;

export const normal =
  (deviation = 1): Fill =>
  (count, random) =>
    Float64Array.from({ length: count }, () => deviation * random.normal());

export const uniform =
  (low: number, high: number): Fill =>
  (count, random) =>
    Float64Array.from({ length: count }, () => low + (high - low) * random.next());

/** Integers in [low, high). */
export const ints =
  (low: number, high: number): Fill =>
  (count, random) =>
    Float64Array.from({ length: count }, () => low + Math.floor((high - low) * random.next()));

export const filled =
  (value: number): Fill =>
  (count) =>
    new Float64Array(count).fill(value);

/** Exactly these. */
export const values =
  (list: ArrayLike<number>): Fill =>
  () =>
    list;

/** The values that a tensor of `dtype` really holds; without a fill all ones, so that nothing passes by being zero. */
export function fillValues(
  fill: Fill | undefined,
  count: number,
  dtype: DType,
  random: Random,
): Float64Array<ArrayBuffer> {
  const list = (fill ?? filled(1))(count, random);
  if (list.length !== count) throw new Error(`a fill gave ${list.length} values for ${count} elements`);
  return Float64Array.from(list, (value) => roundTo(dtype, value));
}
