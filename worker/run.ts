// One inference request through the stages: admit, parse, route, forward, stream.

import type { Context } from "hono";
import { answer } from "./answer.ts";
import type { AppEnv } from "./context.ts";
import type { Job } from "./forward.ts";
import { type NodeRequest, readJson, rethrow } from "./parse.ts";
import { sessionKey } from "./route.ts";

/**
 * @param parse turns the checked JSON of the client into a request to a node; throws ApiError
 */
export async function run(
  c: Context<AppEnv>,
  parse: (body: Record<string, unknown>) => NodeRequest,
): Promise<Response> {
  const gateway = c.get("gateway");
  const { account } = c.get("caller");
  const { release } = gateway.admission.enter(account, Date.now());
  const abort = new AbortController();
  try {
    const request = parse(await readJson(c.req.raw));
    const { target, model, stream, body, renderer } = request;
    c.req.raw.signal.addEventListener("abort", () => abort.abort(), { once: true });
    const job: Job = {
      account,
      requestId: c.get("requestId"),
      target,
      model,
      session: sessionKey(account, model, (name) => c.req.header(name), body),
      body: new TextEncoder().encode(JSON.stringify(body)) as Uint8Array<ArrayBuffer>,
      stream,
      signal: abort.signal,
    };
    const call = { gateway, job, abort, renderer, release };
    return await answer(call).catch((error) => rethrow(error, request.fieldOf));
  } catch (error) {
    release();
    throw error;
  }
}
