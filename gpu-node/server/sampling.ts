// From the fields of a request to what the engine samples with.

import { randomInt } from "node:crypto";
import type { SamplingParams } from "../contract/engine.ts";
import { ApiError } from "../contract/errors.ts";
import type { SamplingDefaults } from "../text/model-text.ts";

/** The fields that both routes share, after validation. */
export interface SamplingFields {
  max_tokens?: number;
  max_completion_tokens?: number;
  min_tokens?: number;
  n?: number;
  seed?: number;
  stop?: string | string[];
  stop_token_ids?: number[];
  ignore_eos?: boolean;
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  repetition_penalty?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  logit_bias?: [number, number][];
}

/** Below this a temperature would divide logits into infinities; it means greedy. */
const GREEDY = 1e-5;

const GOLDEN = 0x9e3779b97f4a7c15n;

/**
 * @param choice index among `n`: choice 0 has the given seed, the others seeds derived from it
 * @param topLogprobs -1 = none
 * @throws ApiError for token ids that the model does not have
 */
export function samplingParams(
  fields: SamplingFields,
  defaults: SamplingDefaults,
  vocabSize: number,
  choice: number,
  topLogprobs: number,
): SamplingParams {
  for (const [id] of fields.logit_bias ?? []) checkToken(id, vocabSize, `logit_bias.${id}`);
  const temperature = fields.temperature ?? defaults.temperature;
  const topP = fields.top_p ?? defaults.topP;
  const topK = fields.top_k ?? defaults.topK;
  const seed = seedOf(fields.seed, choice);
  return {
    temperature: temperature < GREEDY ? 0 : temperature,
    // top_p 0 keeps the likeliest token only.
    topK: topP === 0 ? 1 : Math.min(Math.max(0, topK), vocabSize),
    topP: topP === 0 ? 1 : topP,
    minP: fields.min_p ?? defaults.minP,
    repetitionPenalty: fields.repetition_penalty ?? defaults.repetitionPenalty,
    presencePenalty: fields.presence_penalty ?? 0,
    frequencyPenalty: fields.frequency_penalty ?? 0,
    seedLow: Number(BigInt.asIntN(32, seed)),
    seedHigh: Number(BigInt.asIntN(32, seed >> 32n)),
    logitBias: fields.logit_bias ?? [],
    topLogprobs,
  };
}

/**
 * How many tokens may come: what was asked for, at most what the context has room for.
 * @throws ApiError context_length_exceeded when the prompt leaves no room for one token
 */
export function tokenBudget(
  fields: SamplingFields,
  defaults: SamplingDefaults,
  promptTokens: number,
  maxModelLen: number,
  param: string,
): { maxTokens: number; minTokens: number } {
  const room = maxModelLen - promptTokens;
  if (room < 1) {
    throw new ApiError(
      "context_length_exceeded",
      `The prompt has ${promptTokens} tokens; this model's context is ${maxModelLen} and an answer needs at least one.`,
      { param },
    );
  }
  const asked = fields.max_completion_tokens ?? fields.max_tokens ?? defaults.maxTokens ?? room;
  const maxTokens = Math.min(asked, room);
  return { maxTokens, minTokens: Math.min(fields.min_tokens ?? 0, maxTokens) };
}

export function stopStrings({ stop }: SamplingFields): string[] {
  return stop === undefined ? [] : [stop].flat();
}

/** @throws ApiError invalid_value naming `param` */
export function checkToken(id: number, vocabSize: number, param: string): void {
  if (id < vocabSize) return;
  throw new ApiError("invalid_value", `${param} is not a token of this model, which has ${vocabSize}.`, {
    param,
  });
}

function seedOf(seed: number | undefined, choice: number): bigint {
  const base =
    seed === undefined ? (BigInt(randomInt(2 ** 32)) << 32n) | BigInt(randomInt(2 ** 32)) : BigInt(seed);
  return base + BigInt(choice) * GOLDEN;
}
