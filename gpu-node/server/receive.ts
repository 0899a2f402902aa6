// From a raw request to an authentic, parsed one. The signature is checked before the body is read.

import { randomUUID } from "node:crypto";
import type { Context } from "hono";
import { ApiError } from "../contract/errors.ts";
import { parseJsonObject, readBody } from "../contract/json.ts";
import { bodyMatches } from "../contract/signing.ts";
import { type GpuNode, unavailable } from "./node.ts";

export interface Authentic {
  /** Separates prefix caches. */
  account: string;
  requestId: string;
  body: Record<string, unknown>;
  /** Bytes of the body. */
  size: number;
}

/** The caller's x-request-id when it is fit for headers and logs, else a new one. */
export function requestIdOf(context: Context): string {
  const given = context.req.header("x-request-id");
  return given !== undefined && /^[\w.:-]{1,128}$/.test(given) ? given : `req_${randomUUID()}`;
}

/** @throws ApiError invalid_signature */
export async function authenticate(
  node: GpuNode,
  context: Context,
): Promise<{ account: string; bodySha256: string }> {
  const { pathname, search } = new URL(context.req.url);
  const verdict = await node.verifier.check(context.req.method, pathname + search, (name) =>
    context.req.header(name),
  );
  if (!verdict.ok) throw new ApiError("invalid_signature", sentence(verdict.message));
  return verdict;
}

/**
 * A POST of a generation route.
 * @throws ApiError invalid_signature, 503 while no request can be taken, 415, 413, invalid_json
 */
export async function receive(node: GpuNode, context: Context, requestId: string): Promise<Authentic> {
  const { account, bodySha256 } = await authenticate(node, context);
  const closed = unavailable(node);
  if (closed) throw closed;
  const type = context.req.header("content-type") ?? "";
  if (!/^application\/json\s*(;|$)/i.test(type)) {
    throw new ApiError("unsupported_media_type", "The content type must be application/json.");
  }
  const bytes = await readBody(context.req.raw);
  if (!(await bodyMatches(bodySha256, bytes))) {
    throw new ApiError("invalid_signature", "The body is not the one that was signed.");
  }
  return { account, requestId, body: parseJsonObject(bytes), size: bytes.byteLength };
}

function sentence(text: string): string {
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}
