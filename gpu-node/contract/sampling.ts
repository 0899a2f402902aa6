// Fields that chat.completions and completions share.

import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { boundedArray, clip, integer, number, optional, reject, stringOr, text } from "./schema.ts";

const tokenId = integer(0, 2 ** 31 - 1);

/** `{"1234": -100}` -> [[1234, -100]]; keys such as `__proto__` are not token ids and are refused by name. */
const logitBias = z
  .custom<Record<string, unknown>>(
    (value) => typeof value === "object" && value !== null && !Array.isArray(value),
    {
      error: "must be an object from token ids to numbers",
      abort: true,
    },
  )
  .transform((value, context) => {
    const entries = Object.entries(value);
    const fail = (message: string, path: string[] = []) => {
      context.issues.push({ code: "custom", message, path, input: value });
      return z.NEVER;
    };
    if (entries.length > LIMITS.logitBias) return fail(`must have at most ${LIMITS.logitBias} entries`);
    const out: [number, number][] = [];
    for (const [key, bias] of entries) {
      if (!/^\d{1,9}$/.test(key))
        return fail(`has the key ${JSON.stringify(clip(key))}, which is not a token id`);
      if (typeof bias !== "number" || !(bias >= -100 && bias <= 100)) {
        return fail("must be a number from -100 to 100", [key]);
      }
      out.push([Number(key), bias]);
    }
    return out;
  });

export const samplingFields = {
  stream: optional(z.boolean()),
  stream_options: optional(z.object({ include_usage: optional(z.boolean()) })),
  max_tokens: optional(integer(1, LIMITS.maxTokens)),
  min_tokens: optional(integer(0, LIMITS.maxTokens)),
  n: optional(integer(1, LIMITS.choices)),
  seed: optional(integer(Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER)),
  stop: optional(
    stringOr(
      boundedArray(text(LIMITS.stopCharacters, 1), 0, LIMITS.stops),
      "must be a string or an array of strings",
    ),
  ),
  stop_token_ids: optional(boundedArray(tokenId, 0, LIMITS.stops)),
  ignore_eos: optional(z.boolean()),
  temperature: optional(number(0, LIMITS.temperature)),
  top_p: optional(number(0, 1)),
  /** 0 and -1 mean off. */
  top_k: optional(integer(-1, LIMITS.topK)),
  min_p: optional(number(0, 1)),
  repetition_penalty: optional(number(LIMITS.leastRepetitionPenalty, LIMITS.repetitionPenalty)),
  presence_penalty: optional(number(-LIMITS.penalty, LIMITS.penalty)),
  frequency_penalty: optional(number(-LIMITS.penalty, LIMITS.penalty)),
  logit_bias: optional(logitBias),
  user: optional(text(LIMITS.identifier)),
};

export const modelField = text(LIMITS.modelName, 1);

/** Rules of shared fields that need two of them. */
export function checkSampling(
  request: { min_tokens?: number; stop?: string | string[] },
  maxTokens?: number,
): void {
  if (request.stop === "") reject("stop", "must not be empty");
  if (typeof request.stop === "string" && request.stop.length > LIMITS.stopCharacters) {
    reject("stop", `must have at most ${LIMITS.stopCharacters} characters`);
  }
  if (request.min_tokens !== undefined && maxTokens !== undefined && request.min_tokens > maxTokens) {
    reject("min_tokens", "must not exceed the maximum number of tokens");
  }
}
