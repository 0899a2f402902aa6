// What the engine refuses at once. The server has checked requests already; here one that slipped through ends by itself
// instead of taking the engine down with a plan that the validator refuses.
import type { GenerateRequest, SamplingParams } from "../contract/engine.ts";
import { MAX_LOGIT_BIAS, MAX_TOP_LOGPROBS } from "../contract/engine.ts";
import { LIMITS } from "../contract/limits.ts";

/** What is wrong with a request, or null. */
export function requestFault(request: GenerateRequest, vocab: number): string | null {
  const { prompt, maxTokens, minTokens } = request;
  if (prompt.length < 1) return "the prompt is empty";
  if (!(maxTokens >= 1)) return `maxTokens is ${maxTokens}, it has to be at least 1`;
  if (Number.isNaN(minTokens)) return "minTokens is not a number";
  for (const token of prompt) {
    if (token < 0 || token >= vocab) return `the prompt has token ${token}, the vocabulary ${vocab} tokens`;
  }
  return samplingFault(request.sampling, vocab);
}

const BOUNDS: [keyof SamplingParams, low: number, high: number, integer: boolean][] = [
  ["temperature", 0, Number.MAX_VALUE, false],
  ["topK", 0, 2 ** 31 - 1, true],
  ["topP", 0, 1, false],
  ["minP", 0, 1, false],
  ["repetitionPenalty", LIMITS.leastRepetitionPenalty, LIMITS.repetitionPenalty, false],
  ["presencePenalty", -Number.MAX_VALUE, Number.MAX_VALUE, false],
  ["frequencyPenalty", -Number.MAX_VALUE, Number.MAX_VALUE, false],
  ["seedLow", -(2 ** 31), 2 ** 31 - 1, true],
  ["seedHigh", -(2 ** 31), 2 ** 31 - 1, true],
  ["topLogprobs", -1, MAX_TOP_LOGPROBS, true],
];

function samplingFault(sampling: SamplingParams, vocab: number): string | null {
  for (const [name, low, high, integer] of BOUNDS) {
    const value = sampling[name] as number;
    if (!(value >= low && value <= high) || (integer && !Number.isInteger(value)))
      return `${name} is ${value}`;
  }
  if (sampling.logitBias.length > MAX_LOGIT_BIAS) return `logitBias has more than ${MAX_LOGIT_BIAS} entries`;
  for (const [token, bias] of sampling.logitBias) {
    if (!Number.isInteger(token) || token < 0 || token >= vocab) return `logitBias names token ${token}`;
    if (!Number.isFinite(bias)) return `logitBias of token ${token} is ${bias}`;
  }
  return null;
}
