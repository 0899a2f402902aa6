// Errors in the dialect of the route: OpenAI's `{error}` or the Workers AI envelope with its numeric codes.

import { type ApiError, type ErrorCode, toApiError } from "../gpu-node/contract/errors.ts";

export type Dialect = "openai" | "workers-ai";

/** Numeric code of the Workers AI REST API, and its status where it differs from OpenAI's. */
interface NativeCode {
  code: number;
  status?: number;
}

/** Sources: Workers AI error page, Cloudflare API reference, behaviour of public clients. */
const NATIVE: Record<ErrorCode, NativeCode> = {
  invalid_json: { code: 8001 },
  invalid_value: { code: 8001 },
  missing_field: { code: 8001 },
  unsupported_value: { code: 8001 },
  control_token: { code: 8001 },
  context_length_exceeded: { code: 8001 },
  template_error: { code: 8001 },
  missing_api_key: { code: 10000 },
  invalid_api_key: { code: 10000 },
  expired_api_key: { code: 1031, status: 403 },
  invalid_signature: { code: 10000 },
  account_mismatch: { code: 10000 },
  permission_denied: { code: 10000 },
  model_not_found: { code: 5007, status: 400 },
  not_found: { code: 7003 },
  method_not_allowed: { code: 7001 },
  request_timeout: { code: 3007 },
  body_too_large: { code: 3006 },
  unsupported_media_type: { code: 3003 },
  rate_limit_exceeded: { code: 3040 },
  quota_exceeded: { code: 3036 },
  client_closed: { code: 3008 },
  internal_error: { code: 7009 },
  kv_integrity: { code: 7009 },
  upstream_error: { code: 7009 },
  upstream_disconnect: { code: 7009 },
  no_node: { code: 3040, status: 429 },
  loading: { code: 7009 },
  draining: { code: 7009 },
  queue_full: { code: 3040, status: 429 },
  engine_failed: { code: 7009 },
  upstream_timeout: { code: 3007, status: 408 },
};

interface NativeError {
  code: number;
  message: string;
  /** Our code, the same in both dialects. */
  error_code: string;
  /** The offending field: dotted as in the message, and as a JSON pointer where Cloudflare's API puts it. */
  field?: string;
  source?: { pointer: string };
}

/** The dialect that a path is answered in. */
export function dialectOf(path: string): Dialect {
  return path.startsWith("/client/v4") && !/^\/client\/v4\/accounts\/[^/]+\/ai\/v1\//.test(path)
    ? "workers-ai"
    : "openai";
}

/** Body of a failure. */
export function errorBody(error: ApiError, dialect: Dialect): object {
  if (dialect === "openai") return error.body();
  const detail: NativeError = {
    code: NATIVE[error.code].code,
    message: error.message,
    error_code: error.code,
  };
  if (error.param !== null) {
    detail.field = error.param;
    detail.source = { pointer: `/${error.param.replace(/\[(\d+)\]/g, ".$1").replaceAll(".", "/")}` };
  }
  return { result: null, success: false, errors: [detail], messages: [] };
}

/** Anything thrown, as a response. Internal faults are logged; the client learns the request id only. */
export function errorResponse(thrown: unknown, dialect: Dialect, requestId: string): Response {
  const error = toApiError(thrown);
  if (error.code === "internal_error") {
    console.error(`request ${requestId}: ${thrown instanceof Error ? thrown.stack : String(thrown)}`);
  }
  const status = dialect === "workers-ai" ? (NATIVE[error.code].status ?? error.status) : error.status;
  const headers: Record<string, string> = { ...error.headers(), ...requestIdHeaders(requestId) };
  if (status === 401) headers["www-authenticate"] = "Bearer";
  return Response.json(errorBody(error, dialect), { status, headers });
}

/** `x-request-id` for OpenAI clients, `cf-ai-req-id` for those of Workers AI. */
export function requestIdHeaders(requestId: string): Record<string, string> {
  return { "x-request-id": requestId, "cf-ai-req-id": requestId };
}
