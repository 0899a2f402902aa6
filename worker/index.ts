// The edge: a Worker that checks keys, picks a node and forwards. Composes the stages; each lives in its own file.

import { Hono } from "hono";
import { ApiError } from "../gpu-node/contract/errors.ts";
import { chatCompletions, completions, model, models } from "./api/openai.ts";
import { runModel, runNamedModel, searchModels } from "./api/workers-ai.ts";
import { requireAccount } from "./auth.ts";
import type { AppEnv } from "./context.ts";
import { dialectOf, errorResponse, requestIdHeaders } from "./errors.ts";
import { gatewaySource } from "./gateway.ts";

const ACCOUNT = "/client/v4/accounts/:account";
const REQUEST_ID = /^[A-Za-z0-9._-]{1,128}$/;

const app = new Hono<AppEnv>();
const gatewayOf = gatewaySource();

app.use(async (c, next) => {
  const sent = c.req.header("x-request-id");
  c.set("requestId", sent && REQUEST_ID.test(sent) ? sent : `req_${crypto.randomUUID().replaceAll("-", "")}`);
  await next();
});

app.get("/livez", (c) => c.json({ status: "ok" }));
app.get("/readyz", async (c) => {
  const nodes = await (await gatewayOf(c.env)).table.readiness();
  const ready = nodes.some((node) => node.ready);
  return c.json({ ready, nodes }, ready ? 200 : 503, ready ? {} : { "retry-after": "1" });
});

/** Every other path needs a key, known or not, so that nobody without one learns what exists. */
app.use(async (c, next) => {
  const gateway = await gatewayOf(c.env);
  c.set("gateway", gateway);
  c.set("caller", await gateway.keys.authenticate(c.req.header("authorization"), Date.now()));
  await next();
});
app.use(`${ACCOUNT}/*`, async (c, next) => {
  requireAccount(c.get("caller"), c.req.param("account") ?? "");
  await next();
  for (const [name, value] of Object.entries(requestIdHeaders(c.get("requestId"))))
    c.res.headers.set(name, value);
});

for (const base of ["/v1", `${ACCOUNT}/ai/v1`]) {
  app.post(`${base}/chat/completions`, chatCompletions);
  app.post(`${base}/completions`, completions);
  app.get(`${base}/models`, models);
  app.get(`${base}/models/:model{.+}`, model);
}
app.post(`${ACCOUNT}/ai/run`, runModel);
app.post(`${ACCOUNT}/ai/run/:model{.+}`, runNamedModel);
app.get(`${ACCOUNT}/ai/models/search`, searchModels);

app.notFound((c) => {
  // The two `use` stages match every path; a match of the method's own is a route.
  const other = ["GET", "POST"].find((method) => {
    const [handlers] = app.router.match(method, c.req.path);
    return method !== c.req.method && handlers.some(([[, route]]) => route.method === method);
  });
  const error =
    other === undefined
      ? new ApiError("not_found", "No such path.")
      : new ApiError("method_not_allowed", `${c.req.method} is not available for this path; use ${other}.`);
  return errorResponse(error, dialectOf(c.req.path), c.get("requestId"));
});
app.onError((error, c) => errorResponse(error, dialectOf(c.req.path), c.get("requestId")));

export default app;
