// The OpenAI dialect: requests and answers pass through as they are.

import type { Context } from "hono";
import { parseChatRequest } from "../../gpu-node/contract/chat.ts";
import { parseCompletionRequest } from "../../gpu-node/contract/completions.ts";
import { ApiError } from "../../gpu-node/contract/errors.ts";
import type { Renderer } from "../answer.ts";
import type { AppEnv } from "../context.ts";
import { listModels } from "../models.ts";
import type { ModelEntry } from "../nodes.ts";
import { run } from "../run.ts";

export async function chatCompletions(c: Context<AppEnv>): Promise<Response> {
  return run(c, (body) => {
    const { model, stream } = parseChatRequest(body);
    return { target: "/v1/chat/completions", model, stream: stream ?? false, body, renderer };
  });
}

export async function completions(c: Context<AppEnv>): Promise<Response> {
  return run(c, (body) => {
    const { model, stream } = parseCompletionRequest(body);
    return { target: "/v1/completions", model, stream: stream ?? false, body, renderer };
  });
}

export async function models(c: Context<AppEnv>): Promise<Response> {
  const entries = await listModels(c);
  return c.json({ object: "list", data: entries.map(modelObject) });
}

export async function model(c: Context<AppEnv>): Promise<Response> {
  const id = c.req.param("model") ?? "";
  const entry = (await listModels(c)).find((candidate) => candidate.id === id);
  if (!entry) {
    throw new ApiError("model_not_found", `No node serves the model ${JSON.stringify(id)}.`, {
      param: "model",
    });
  }
  return c.json(modelObject(entry));
}

const renderer: Renderer = {
  dialect: "openai",
  json: (text) => text,
  stream: (events) => events.blocks(),
};

function modelObject({ id, created, ownedBy, contextWindow }: ModelEntry): object {
  return { id, object: "model", created, owned_by: ownedBy, max_model_len: contextWindow };
}
