// Sampling parameters as the device keeps them: 16 int32 per slot, f32 as bits, and a list of biased tokens.
import type { SamplingParams } from "../contract/engine.ts";

export const PARAM_COUNT = 16;

const floats = new Float32Array(1);
const bits = new Int32Array(floats.buffer);

/** The bits of `value` rounded to f32. */
export function floatBits(value: number): number {
  floats[0] = value;
  return bits[0];
}

/** The f32 that `value` holds the bits of. */
export function bitsFloat(value: number): number {
  bits[0] = value;
  return floats[0];
}

/** Plain greedy decoding without log probabilities. */
export const GREEDY: SamplingParams = Object.freeze({
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repetitionPenalty: 1,
  presencePenalty: 0,
  frequencyPenalty: 0,
  seedLow: 0,
  seedHigh: 0,
  logitBias: [],
  topLogprobs: -1,
});

/** Writes PARAM_COUNT ints: the record that native/ops/sample reads. */
export function packSampling(p: SamplingParams, into: Int32Array, at: number): void {
  into[at] = floatBits(p.temperature);
  into[at + 1] = p.topK;
  into[at + 2] = floatBits(p.topP);
  into[at + 3] = floatBits(p.minP);
  into[at + 4] = floatBits(p.repetitionPenalty);
  into[at + 5] = floatBits(p.presencePenalty);
  into[at + 6] = floatBits(p.frequencyPenalty);
  into[at + 7] = p.seedLow;
  into[at + 8] = p.seedHigh;
  into[at + 9] = p.topLogprobs;
  into[at + 10] = p.logitBias.length;
  into.fill(0, at + 11, at + PARAM_COUNT);
}

/** Writes the biased ids, then their values. */
export function packBias(p: SamplingParams, into: Int32Array, at: number): void {
  const count = p.logitBias.length;
  for (let i = 0; i < count; i++) {
    into[at + i] = p.logitBias[i][0];
    into[at + count + i] = floatBits(p.logitBias[i][1]);
  }
}
