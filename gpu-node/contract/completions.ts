// POST /v1/completions: the request.

import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { checkSampling, modelField, samplingFields } from "./sampling.ts";
import {
  boundedArray,
  integer,
  kindOf,
  optional,
  REQUIRED,
  reject,
  unsupported,
  validate,
} from "./schema.ts";

const NOT_A_PROMPT =
  "must be a string, an array of strings, an array of token ids or an array of such arrays";

const tokenId = integer(0, 2 ** 31 - 1);
const tokenIds = boundedArray(tokenId, 1, LIMITS.promptTokens);
const prompts = boundedArray(z.unknown(), 1, LIMITS.prompts);

/** The four forms of `prompt`, as a list of strings or of token id lists. */
const prompt = z.unknown().transform((value, context): (string | number[])[] => {
  const fail = (issue: { message: string; path?: PropertyKey[] }) => {
    context.issues.push({ code: "custom", input: value, path: [], ...issue });
    return z.NEVER;
  };
  const adopt = (error: z.ZodError, at: PropertyKey[]) => {
    const [issue] = error.issues;
    const path = [...at, ...issue.path];
    return fail({ path, message: issue.code === "custom" ? issue.message : "must be a token id" });
  };
  if (typeof value === "string") return [value];
  if (!Array.isArray(value)) return fail({ message: value === undefined ? REQUIRED : NOT_A_PROMPT });
  if (typeof value[0] === "number") {
    const ids = tokenIds.safeParse(value);
    return ids.success ? [ids.data] : adopt(ids.error, []);
  }
  const list = prompts.safeParse(value);
  if (!list.success) return adopt(list.error, []);
  const out: (string | number[])[] = [];
  for (const [i, item] of list.data.entries()) {
    if (typeof item === "string") {
      out.push(item);
    } else if (Array.isArray(item)) {
      const ids = tokenIds.safeParse(item);
      if (!ids.success) return adopt(ids.error, [i]);
      out.push(ids.data);
    } else {
      return fail({ path: [i], message: `must be a string or an array of token ids, not ${kindOf(item)}` });
    }
  }
  return out;
});

const completionRequest = z.object({
  model: modelField,
  prompt,
  ...samplingFields,
  /** Number of alternatives per token; 0 reports the chosen token only. */
  logprobs: optional(integer(0, LIMITS.topLogprobs)),
  echo: optional(z.boolean()),
  suffix: optional(z.string()),
  best_of: optional(integer(1, LIMITS.choices)),
});

export type CompletionRequest = z.output<typeof completionRequest>;

/**
 * A body parsed by `parseJsonObject`, as a request.
 * @throws ApiError 400 with the field as `param`
 */
export function parseCompletionRequest(body: Record<string, unknown>): CompletionRequest {
  const request = validate(completionRequest, body);
  checkSampling(request, request.max_tokens);
  if (request.prompt.length * (request.n ?? 1) > LIMITS.sequences) {
    reject("n", `times the number of prompts must be at most ${LIMITS.sequences}`);
  }
  return request;
}

/**
 * What our own nodes do not do (other OpenAI servers behind the edge may).
 * @throws ApiError unsupported_value
 */
export function refuseUnsupportedCompletion(request: CompletionRequest): void {
  if (request.echo) unsupported("echo", "is not supported");
  if (request.suffix) unsupported("suffix", "is not supported");
  if (request.best_of !== undefined && request.best_of !== (request.n ?? 1)) {
    unsupported("best_of", "other than n is not supported");
  }
}
