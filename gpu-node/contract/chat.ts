// POST /v1/chat/completions: the request.

import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { messages } from "./messages.ts";
import { checkSampling, modelField, samplingFields } from "./sampling.ts";
import { integer, optional, reject, unsupported, validate } from "./schema.ts";
import { checkTools, toolChoice, tools } from "./tools.ts";

/** What a template may be told; other keys are ignored, so that none can reach an argument of ours. */
const templateArguments = z.object({
  enable_thinking: optional(z.boolean()),
  thinking: optional(z.boolean()),
  clear_thinking: optional(z.boolean()),
});

/** Unknown fields are ignored, as the OpenAI API does. */
const chatRequest = z.object({
  model: modelField,
  messages,
  ...samplingFields,
  max_completion_tokens: optional(integer(1, LIMITS.maxTokens)),
  logprobs: optional(z.boolean()),
  top_logprobs: optional(integer(0, LIMITS.topLogprobs)),
  tools: optional(tools),
  tool_choice: optional(toolChoice),
  parallel_tool_calls: optional(z.boolean()),
  response_format: optional(z.looseObject({ type: z.enum(["text", "json_object", "json_schema"]) })),
  chat_template_kwargs: optional(templateArguments),
  reasoning_effort: optional(z.string().regex(/^[a-z]{1,16}$/, "must be a word such as low, medium or high")),
});

export type ChatRequest = z.output<typeof chatRequest>;

/**
 * A body parsed by `parseJsonObject`, as a request.
 * @throws ApiError 400 with the field as `param`
 */
export function parseChatRequest(body: Record<string, unknown>): ChatRequest {
  const request = validate(chatRequest, body);
  checkSampling(request, request.max_completion_tokens ?? request.max_tokens);
  checkTools(request.tools ?? [], request.tool_choice);
  if (request.top_logprobs !== undefined && request.logprobs !== true) {
    reject("top_logprobs", "needs logprobs to be true");
  }
  return request;
}

/**
 * What our own nodes do not do (other OpenAI servers behind the edge may).
 * @throws ApiError unsupported_value
 */
export function refuseUnsupportedChat(request: ChatRequest, body: Record<string, unknown>): void {
  const choice = request.tool_choice;
  if (choice === "required" || typeof choice === "object") {
    unsupported(
      "tool_choice",
      'other than "none" or "auto" needs constrained decoding, which this node does not do',
    );
  }
  const format = request.response_format?.type ?? "text";
  if (format !== "text") {
    unsupported("response_format.type", `${format} needs constrained decoding, which this node does not do`);
  }
  for (const legacy of ["functions", "function_call"]) {
    if (body[legacy] != null) unsupported(legacy, "is the legacy form; use tools and tool_choice");
  }
  for (const field of ["audio", "web_search_options"]) {
    if (body[field] != null) unsupported(field, "is not supported");
  }
}
