// Every error a client can see: one table, one class. Shared by worker/ and gpu-node/; imports nothing of ours.

interface ErrorKind {
  /** HTTP status when nothing has been sent yet. */
  status: number;
  /** OpenAI's `error.type`. */
  type: string;
  fault: "client" | "server";
  /** The same request may succeed later or on another node. */
  retryable: boolean;
  /** What the reader of the error should do. */
  advice: string;
}

const client = (status: number, advice: string, type = "invalid_request_error"): ErrorKind => ({
  status,
  type,
  fault: "client",
  retryable: false,
  advice,
});
const server = (status: number, retryable: boolean, advice: string, type = "server_error"): ErrorKind => ({
  status,
  type,
  fault: "server",
  retryable,
  advice,
});

/** Codes in use. `error.code` of the OpenAI shape is the key. */
export const ERRORS = {
  invalid_json: client(400, "Send a JSON object encoded in UTF-8."),
  invalid_value: client(400, "Correct the field named by `param`."),
  missing_field: client(400, "Add the field named by `param`."),
  unsupported_value: client(400, "Leave the field named by `param` out, or use a supported value."),
  control_token: client(
    400,
    "Remove the control token from the text, or start the node with --control-tokens text.",
  ),
  context_length_exceeded: client(400, "Shorten the prompt or choose a model with a longer context."),
  template_error: client(400, "The model's chat template refused these messages; see the message."),
  missing_api_key: client(401, "Send `Authorization: Bearer ew_...`.", "authentication_error"),
  invalid_api_key: client(401, "Check the API key; it may have been revoked.", "authentication_error"),
  expired_api_key: client(401, "Ask for a new API key.", "authentication_error"),
  invalid_signature: client(
    401,
    "Reach this node through its edge, with the node's key.",
    "authentication_error",
  ),
  account_mismatch: client(403, "Use the account that the API key belongs to.", "permission_error"),
  permission_denied: client(403, "Use a key with the needed scope.", "permission_error"),
  model_not_found: client(404, "List the models with GET /v1/models."),
  not_found: client(404, "Check the path."),
  method_not_allowed: client(405, "Use the method that the documentation of the route names."),
  request_timeout: { ...client(408, "Send the request faster."), retryable: true },
  body_too_large: client(413, "Send a smaller body."),
  unsupported_media_type: client(415, "Send `Content-Type: application/json`."),
  rate_limit_exceeded: { ...client(429, "Wait, then retry.", "rate_limit_error"), retryable: true },
  quota_exceeded: client(429, "The account's quota is used up.", "insufficient_quota"),
  client_closed: client(499, "The client closed the connection."),
  internal_error: server(500, true, "Retry; report it with the request id if it persists."),
  kv_integrity: server(500, true, "Retry; the request was ended because its KV pages could not be trusted."),
  upstream_error: server(502, true, "Retry; the node's answer was not usable."),
  upstream_disconnect: server(502, true, "Retry; the node went away."),
  no_node: server(503, true, "Retry; no node is ready for this model."),
  loading: server(503, true, "Retry after the time in Retry-After; the model is loading."),
  draining: server(503, true, "Retry; this node is shutting down."),
  queue_full: server(503, true, "Retry; the node's queue is full.", "overloaded_error"),
  engine_failed: server(503, true, "Retry; the node's engine failed."),
  upstream_timeout: server(504, true, "Retry; the node did not answer in time."),
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof ERRORS;

/** For a code that came over the wire. */
export function isErrorCode(code: unknown): code is ErrorCode {
  return typeof code === "string" && Object.hasOwn(ERRORS, code);
}

/** OpenAI's error body; all four keys are always present. */
export interface ErrorBody {
  error: { message: string; type: string; param: string | null; code: string };
}

export interface ErrorDetail {
  /** Path of the offending field, e.g. `messages[3].content`. */
  param?: string;
  /** Seconds, for Retry-After. */
  retryAfter?: number;
  /** Kept for logs, never sent. */
  cause?: unknown;
  /** Overrides the table, e.g. for an engine error that says so itself. */
  retryable?: boolean;
}

/** The one error class: thrown anywhere, turned into a response at the boundary. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly param: string | null;
  readonly retryable: boolean;
  readonly retryAfter: number | undefined;

  constructor(code: ErrorCode, message: string, detail: ErrorDetail = {}) {
    super(message, { cause: detail.cause });
    this.name = "ApiError";
    this.code = code;
    this.status = ERRORS[code].status;
    this.param = detail.param ?? null;
    this.retryable = detail.retryable ?? ERRORS[code].retryable;
    this.retryAfter = detail.retryAfter;
  }

  /** OpenAI shape, for a response body or for `data:` in a stream that has begun. */
  body(): ErrorBody {
    const { type } = ERRORS[this.code];
    return { error: { message: this.message, type, param: this.param, code: this.code } };
  }

  /** Retry headers that the openai, anthropic and cloudflare clients honour. */
  headers(): Record<string, string> {
    const headers: Record<string, string> = { "x-should-retry": String(this.retryable) };
    if (this.retryAfter !== undefined) headers["retry-after"] = String(Math.ceil(this.retryAfter));
    return headers;
  }
}

/**
 * Anything thrown, as an ApiError. What is not one already becomes `internal_error` with a fixed text: messages and
 * stacks of internal faults may hold addresses and paths (vLLM #45119) and stay in `cause`.
 */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError("internal_error", "Internal error.", { cause: error });
}
