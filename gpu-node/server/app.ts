// The routes of a GPU node.

import { Hono } from "hono";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { ApiError, toApiError } from "../contract/errors.ts";
import { chatCompletions } from "./chat.ts";
import { completions } from "./completions.ts";
import { checkModel, type GpuNode, unavailable } from "./node.ts";
import { authenticate, receive, requestIdOf } from "./receive.ts";

type Variables = { requestId: string; error: ApiError | undefined };

const METHODS: Record<string, string> = {
  "/v1/chat/completions": "POST",
  "/v1/completions": "POST",
  "/v1/models": "GET",
  "/livez": "GET",
  "/readyz": "GET",
  "/metrics": "GET",
};

export function createApp(node: GpuNode): Hono<{ Variables: Variables }> {
  const app = new Hono<{ Variables: Variables }>();
  const created = Math.floor(node.clock() / 1000);
  const model = (id: string) => ({
    id,
    object: "model",
    created,
    owned_by: "edgewise",
    max_model_len: node.engine.maxModelLen,
  });

  app.use(async (context, next) => {
    context.set("requestId", requestIdOf(context));
    await next();
    context.header("x-request-id", context.get("requestId"));
    const route = Object.hasOwn(METHODS, context.req.path) ? context.req.path : "other";
    node.metrics.request(route, context.res.status, context.get("error")?.code ?? "ok");
  });

  app.post("/v1/chat/completions", async (context) =>
    chatCompletions(node, context, await receive(node, context, context.get("requestId"))),
  );
  app.post("/v1/completions", async (context) =>
    completions(node, context, await receive(node, context, context.get("requestId"))),
  );
  app.get("/v1/models", async (context) => {
    await authenticate(node, context);
    return context.json({ object: "list", data: node.modelNames.map(model) });
  });
  app.get("/v1/models/:name{.+}", async (context) => {
    await authenticate(node, context);
    checkModel(node, context.req.param("name"));
    return context.json(model(context.req.param("name")));
  });
  app.get("/livez", (context) => context.json({ status: "ok" }));
  app.get("/readyz", (context) => {
    const { state, progress, running, waiting } = node.engine.status();
    const closed = unavailable(node);
    if (closed === undefined) return context.json({ status: "ready", running, waiting });
    for (const [name, value] of Object.entries(closed.headers())) context.header(name, value);
    return context.json({ status: state, progress, message: closed.message }, 503);
  });
  app.get("/metrics", async (context) => {
    const { contentType, text } = await node.metrics.expose();
    return context.body(text, 200, { "content-type": contentType });
  });

  app.notFound((context) => {
    const method = METHODS[context.req.path];
    if (method === undefined || !Object.hasOwn(METHODS, context.req.path)) {
      throw new ApiError("not_found", "There is no such route.");
    }
    context.header("allow", method);
    throw new ApiError("method_not_allowed", `This route takes ${method} only.`);
  });

  app.onError((thrown, context) => {
    const error = toApiError(thrown);
    context.set("error", error);
    if (error.code === "internal_error") node.log("internal error", thrown);
    for (const [name, value] of Object.entries(error.headers())) context.header(name, value);
    return context.json(error.body(), error.status as ContentfulStatusCode);
  });
  return app;
}
