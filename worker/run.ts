// One inference request through the stages: admit, parse, route, forward, stream.

import type { Context } from "hono";
import { ApiError } from "../gpu-node/contract/errors.ts";
import { readJson } from "./admit.ts";
import { answer, type Renderer } from "./answer.ts";
import type { AppEnv } from "./context.ts";
import type { Job } from "./forward.ts";
import { sessionKey } from "./route.ts";

/** A request in the node's terms. */
export interface NodeRequest {
  target: Job["target"];
  model: string;
  stream: boolean;
  /** Body for the node. */
  body: Record<string, unknown>;
  renderer: Renderer;
  /** The client's name of a field of `body`, where they differ. */
  fieldOf?: (param: string) => string;
}

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

/** Runs `parse`; the field that an error names is renamed to what the client wrote. */
export function withField<T>(fieldOf: (param: string) => string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    return rethrow(error, fieldOf);
  }
}

function rethrow(error: unknown, fieldOf: NodeRequest["fieldOf"]): never {
  if (!fieldOf || !(error instanceof ApiError) || error.param === null) throw error;
  const { param, retryAfter, retryable } = error;
  throw new ApiError(error.code, error.message, { param: fieldOf(param), retryAfter, retryable });
}
