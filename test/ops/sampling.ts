// An independent sampler in float64, and rows for the tests of the op `sample`.
import type { SamplingParams } from "../../gpu-node/contract/engine.ts";
import { GREEDY as PLAIN } from "../../gpu-node/engine/sampling.ts";

export const RECORD = 48;

export const GREEDY: SamplingParams = { ...PLAIN, seedLow: 1, seedHigh: 2 };

/** The parameter record of a slot, i32 [16]. */
export function paramsRecord(p: SamplingParams): Int32Array {
  const words = new Int32Array(16);
  const reals = new Float32Array(words.buffer);
  words[1] = p.topK;
  words[7] = p.seedLow;
  words[8] = p.seedHigh;
  words[9] = p.topLogprobs;
  words[10] = p.logitBias.length;
  const order = [
    p.temperature,
    0,
    p.topP,
    p.minP,
    p.repetitionPenalty,
    p.presencePenalty,
    p.frequencyPenalty,
  ];
  for (const i of [0, 2, 3, 4, 5, 6]) reals[i] = order[i];
  return words;
}

/** Reads a parameter record back as the op sees it, reals rounded to f32. */
export function readParams(words: ArrayLike<number>, bias: [number, number][]): SamplingParams {
  const i32 = Int32Array.from(words);
  const real = new Float32Array(i32.buffer);
  return {
    temperature: real[0],
    topK: i32[1],
    topP: real[2],
    minP: real[3],
    repetitionPenalty: real[4],
    presencePenalty: real[5],
    frequencyPenalty: real[6],
    seedLow: i32[7],
    seedHigh: i32[8],
    topLogprobs: i32[9],
    logitBias: bias.slice(0, i32[10]),
  };
}

/** Philox4x32-10 with the seed as key and {position, 0, 0, 0} as counter: 53 bits in [0, 1). */
export function uniformOf(seedLow: number, seedHigh: number, position: number): number {
  let c = [BigInt(position), 0n, 0n, 0n];
  let k = [BigInt(seedLow >>> 0), BigInt(seedHigh >>> 0)];
  const mask = 0xffffffffn;
  for (let round = 0; round < 10; round++) {
    const a = 0xd2511f53n * c[0];
    const b = 0xcd9e8d57n * c[2];
    c = [(b >> 32n) ^ c[1] ^ k[0], b & mask, (a >> 32n) ^ c[3] ^ k[1], a & mask];
    k = [(k[0] + 0x9e3779b9n) & mask, (k[1] + 0xbb67ae85n) & mask];
  }
  return Number(((c[0] << 32n) | c[1]) >> 11n) / 2 ** 53;
}

export interface Sampled {
  token: number;
  status: number;
  logprob: number;
  top: [number, number][];
  /** Tokens that could have been drawn. */
  kept: number[];
}

const clamp = (y: number) => Math.max(Math.fround(-3e38), Math.min(Math.fround(3e38), Math.fround(y)));

export function adjusted(
  raw: Float64Array,
  p: SamplingParams,
  history: ArrayLike<number>,
  promptLength: number,
): Float64Array {
  const y = raw.slice();
  const change = (id: number, f: (v: number) => number) => {
    if (y[id] !== -Infinity) y[id] = clamp(f(y[id]));
  };
  for (const [id, value] of p.logitBias) change(id, (v) => v + Math.fround(value));
  const tokens = Array.from(history);
  for (const id of new Set(tokens)) {
    change(id, (v) => (v > 0 ? v / p.repetitionPenalty : v * p.repetitionPenalty));
  }
  const output = tokens.slice(promptLength);
  for (const id of new Set(output)) {
    const count = output.filter((t) => t === id).length;
    change(id, (v) => Math.fround(v - Math.fround(p.frequencyPenalty * count)) - p.presencePenalty);
  }
  return y;
}

/** Samples one row; `history` is everything before `position`. */
export function sampleRow(
  raw: Float64Array,
  p: SamplingParams,
  history: ArrayLike<number>,
  position: number,
  promptLength: number,
): Sampled {
  const failed: Sampled = { token: -1, status: 2, logprob: 0, top: [], kept: [] };
  const usable = (y: Float64Array) =>
    y.every((v) => !Number.isNaN(v) && v !== Infinity) && y.some((v) => v !== -Infinity);
  if (!usable(raw)) return failed;
  const y = adjusted(raw, p, history, promptLength);
  if (!usable(y)) return failed;
  const order = (values: Float64Array) =>
    Array.from(values, (_, i) => i).sort((a, b) => values[b] - values[a] || a - b);

  let kept = order(y);
  const top = y[kept[0]];
  if (p.temperature > 0) {
    const temperature = Math.min(p.temperature, 1e30);
    const weight = (id: number) => Math.exp((y[id] - top) / temperature);
    if (p.minP > 0) {
      const bound = top + temperature * Math.log(p.minP);
      kept = kept.filter((id, i) => i === 0 || y[id] >= bound);
    }
    if (p.topK > 0) kept = kept.slice(0, p.topK);
    if (p.topP < 1) {
      const total = kept.reduce((sum, id) => sum + weight(id), 0);
      const end = firstSum(kept, weight, (sum) => sum >= p.topP * total);
      if (end >= 0) kept = kept.slice(0, end + 1);
    }
    kept.sort((a, b) => a - b);
    kept = kept.filter((id) => weight(id) > 0);
    const total = kept.reduce((sum, id) => sum + weight(id), 0);
    const target = uniformOf(p.seedLow, p.seedHigh, position) * total;
    const at = firstSum(kept, weight, (sum) => sum > target);
    const token = kept[at >= 0 ? at : kept.length - 1];
    return { ...logprobs(raw, p, token, order(raw)), kept };
  }
  return { ...logprobs(raw, p, kept[0], order(raw)), kept: [kept[0]] };
}

/** First index up to which the weights, summed in order, pass the test; -1: none. */
function firstSum(ids: number[], weight: (id: number) => number, passes: (sum: number) => boolean): number {
  let sum = 0;
  return ids.findIndex((id) => {
    sum += weight(id);
    return passes(sum);
  });
}

function logprobs(raw: Float64Array, p: SamplingParams, token: number, order: number[]) {
  const none = { token, status: 1, logprob: 0, top: [] as [number, number][] };
  if (p.topLogprobs < 0) return none;
  const largest = raw[order[0]];
  const logTotal = largest + Math.log(raw.reduce((sum, v) => sum + Math.exp(v - largest), 0));
  const top = order
    .slice(0, p.topLogprobs)
    .filter((id) => raw[id] !== -Infinity)
    .map((id): [number, number] => [id, raw[id] - logTotal]);
  return { ...none, logprob: raw[token] - logTotal, top };
}
