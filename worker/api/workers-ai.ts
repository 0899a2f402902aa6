// The Workers AI dialect: native input and the envelope. Nodes speak OpenAI; this file translates there and back.

import type { Context } from "hono";
import { z } from "zod";
import { parseChatRequest } from "../../gpu-node/contract/chat.ts";
import { parseCompletionRequest } from "../../gpu-node/contract/completions.ts";
import { ApiError } from "../../gpu-node/contract/errors.ts";
import { LIMITS } from "../../gpu-node/contract/limits.ts";
import { integer, jsonObject, text, unsupported, validate } from "../../gpu-node/contract/schema.ts";
import type { AppEnv } from "../context.ts";
import { EDGE } from "../limits.ts";
import { listModels } from "../models.ts";
import type { ModelEntry } from "../nodes.ts";
import { type NodeRequest, withField } from "../parse.ts";
import { run } from "../run.ts";
import { renderer } from "./workers-ai-output.ts";

const MODEL_NAME = /^[@A-Za-z0-9._/:-]+$/;

const namedInput = z.object({ model: text(LIMITS.modelName, 1), input: jsonObject });

const nativeInput = z.object({
  prompt: text(LIMITS.bodyBytes, 1).optional(),
  raw: z.boolean().optional(),
});

const page = z.object({
  page: z.coerce.number().pipe(integer(1, Number.MAX_SAFE_INTEGER)).default(1),
  per_page: z.coerce.number().pipe(integer(1, EDGE.perPage)).default(50),
  search: z.string().optional(),
  task: z.string().optional(),
});

const TASK = {
  id: "c329a1f9-323d-4e91-b2aa-582dd4188d34",
  name: "Text Generation",
  description: "Family of generative text models, such as large language models (LLM).",
};

/** POST /ai/run/{model}; the model's slashes may be encoded. */
export async function runNamedModel(c: Context<AppEnv>): Promise<Response> {
  const query = c.req.query("queueRequest");
  return run(c, (body) => {
    if (query === "true") unsupported("queueRequest", "is not supported: batches are not served here");
    return toNode(c.req.param("model") ?? "", body);
  });
}

/** POST /ai/run with `{model, input}`. */
export async function runModel(c: Context<AppEnv>): Promise<Response> {
  return run(c, (body) => {
    const { model, input } = validate(namedInput, body);
    const outer = (param: string) => (param === "model" ? param : `input.${param}`);
    const request = withField(outer, () => toNode(model, input));
    const inner = request.fieldOf;
    return { ...request, fieldOf: (param) => outer(inner ? inner(param) : param) };
  });
}

/** GET /ai/models/search. Past the last page the list is empty: clients ask until it is. */
export async function searchModels(c: Context<AppEnv>): Promise<Response> {
  const query = validate(page, c.req.query());
  const found = (await listModels(c)).filter(
    (model) =>
      (!query.search || model.id.toLowerCase().includes(query.search.toLowerCase())) &&
      (!query.task || query.task.toLowerCase() === TASK.name.toLowerCase()),
  );
  const result = found
    .slice((query.page - 1) * query.per_page)
    .slice(0, query.per_page)
    .map(catalogueEntry);
  return c.json({
    result,
    success: true,
    errors: [],
    messages: [],
    result_info: {
      page: query.page,
      per_page: query.per_page,
      count: result.length,
      total_count: found.length,
    },
  });
}

/**
 * Native input as a request to a node: `messages`, or `prompt` as one user message, or `prompt` untouched by the chat
 * template when `raw` is true.
 * @throws ApiError
 */
function toNode(model: string, input: Record<string, unknown>): NodeRequest {
  if (!MODEL_NAME.test(model) || model.length > LIMITS.modelName) {
    throw new ApiError("model_not_found", "The model name is malformed.", { param: "model" });
  }
  if (input.requests != null) unsupported("requests", "is not supported: batches are not served here");
  if (input.lora != null) unsupported("lora", "is not supported");
  const { prompt, raw } = validate(nativeInput, input);
  if (prompt !== undefined && input.messages != null) {
    throw new ApiError("invalid_value", "prompt and messages exclude each other.", { param: "prompt" });
  }
  const { prompt: _, raw: __, options: ___, ...rest } = input;
  const body: Record<string, unknown> = { ...rest, model };
  if (input.stream === true) body.stream_options = { include_usage: true };
  if (prompt !== undefined && raw) {
    body.prompt = prompt;
    const { stream, n } = parseCompletionRequest(body);
    oneStream(stream, n);
    return { target: "/v1/completions", model, stream: stream ?? false, body, renderer };
  }
  const fieldOf = (param: string) => (prompt === undefined ? param : param.replace(/^messages.*/, "prompt"));
  if (prompt !== undefined) body.messages = [{ role: "user", content: prompt }];
  if (Array.isArray(input.tools)) body.tools = input.tools.map(openAiTool);
  const { stream, n } = withField(fieldOf, () => parseChatRequest(body));
  oneStream(stream, n);
  return { target: "/v1/chat/completions", model, stream: stream ?? false, body, renderer, fieldOf };
}

/** Native frames say nothing of the choice they belong to. */
function oneStream(stream: unknown, n: unknown): void {
  if (stream && typeof n === "number" && n > 1) unsupported("n", "above 1 can't be streamed in this dialect");
}

/** `{name, description, parameters}` is Workers AI's older form of a tool. */
function openAiTool(tool: unknown): unknown {
  const flat = typeof tool === "object" && tool !== null && !("function" in tool) && "name" in tool;
  return flat ? { type: "function", function: tool } : tool;
}

function catalogueEntry(model: ModelEntry): object {
  const properties = [{ property_id: "async_queue", value: "false" }];
  if (model.contextWindow !== undefined) {
    properties.push({ property_id: "context_window", value: String(model.contextWindow) });
  }
  return {
    id: model.id,
    source: 1,
    name: model.id,
    description: "",
    task: TASK,
    created_at: new Date(model.created * 1000).toISOString(),
    tags: [],
    properties,
  };
}
