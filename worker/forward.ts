// Sending one request to a node: signed, retried on another node only before the first byte of content.

import { ApiError, ERRORS, type ErrorCode, isErrorCode } from "../gpu-node/contract/errors.ts";
import type { Gateway } from "./gateway.ts";
import { EDGE } from "./limits.ts";
import type { NodeState } from "./nodes.ts";
import { place } from "./route.ts";
import { EventReader } from "./stream.ts";

export interface Job {
  account: string;
  requestId: string;
  /** Path on the node. */
  target: "/v1/chat/completions" | "/v1/completions";
  model: string;
  /** See `sessionKey`. */
  session: string;
  body: Uint8Array<ArrayBuffer>;
  stream: boolean;
  /** Aborted when the client leaves. */
  signal: AbortSignal;
}

/** A node's answer whose first bytes are here. */
export type Answer =
  | { kind: "json"; node: string; text: string }
  | { kind: "stream"; node: string; events: EventReader };

/** HTTP statuses of a node after which another node may do better. */
const RETRYABLE = new Set([404, 408, 429, 500, 502, 503, 504]);

/**
 * Tries nodes in order of affinity until one answers.
 * @throws ApiError with the last node's error, or model_not_found, no_node, client_closed
 */
export async function forward(gateway: Gateway, job: Job): Promise<Answer> {
  const { table } = gateway;
  const nodes = await candidates(gateway, job);
  table.earnRetry();
  let last: ApiError | undefined;
  for (const [attempt, node] of nodes.slice(0, EDGE.attempts).entries()) {
    if (attempt > 0 && !table.spendRetry()) break;
    try {
      return await ask(node, job);
    } catch (error) {
      if (job.signal.aborted) throw new ApiError("client_closed", "The client closed the connection.");
      if (!(error instanceof NodeFault)) throw error;
      last = error.shown;
      if (!error.elsewhere) throw last;
      console.warn(`request ${job.requestId}: node ${node.id}: ${last.code}: ${error.message}`);
    }
  }
  throw last ?? noNode();
}

/** A failure of one attempt: what to show if it is the last, and whether another node may be asked. */
class NodeFault extends Error {
  readonly shown: ApiError;
  readonly elsewhere: boolean;

  constructor(shown: ApiError, elsewhere: boolean, detail = shown.message) {
    super(detail);
    this.shown = shown;
    this.elsewhere = elsewhere;
  }
}

async function candidates(gateway: Gateway, job: Job): Promise<NodeState[]> {
  const { table, pins } = gateway;
  if (table.nodes.length === 0) throw noNode();
  let serving = table.serving(job.model);
  if (serving.length === 0 || !table.complete()) {
    await table.refresh(job.account, job.signal);
    serving = table.serving(job.model);
  }
  if (serving.length === 0) {
    if (!table.complete()) throw noNode();
    throw new ApiError("model_not_found", `No node serves the model ${JSON.stringify(job.model)}.`, {
      param: "model",
    });
  }
  const now = Date.now();
  const byId = new Map(serving.map((node) => [node.id, node]));
  const ranked = place(
    job.session,
    serving.map((node) => ({
      id: node.id,
      weight: node.config.weight,
      load: node.leases.count(now),
      healthy: node.healthy(now),
    })),
    pins,
    now,
  );
  return ranked.map(({ id }) => byId.get(id)!);
}

async function ask(node: NodeState, job: Job): Promise<Answer> {
  const lease = node.leases.take(Date.now());
  job.signal.addEventListener("abort", () => lease.release(), { once: true });
  let streaming = false;
  try {
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(), EDGE.firstByteMs);
    try {
      const response = await send(node, job, deadline.signal);
      if (response.status !== 200) throw await refusal(node, response);
      if (!isEventStream(response)) {
        if (job.stream) throw unusable(node, "answered a stream request without a stream");
        const text = await readText(response, EDGE.answerBytes);
        node.succeeded();
        return { kind: "json", node: node.id, text };
      }
      if (!job.stream || !response.body) throw unusable(node, "answered with a stream");
      const events = new EventReader(response.body, lease);
      await checkFirst(events, node);
      node.succeeded();
      streaming = true;
      return { kind: "stream", node: node.id, events };
    } catch (error) {
      if (error instanceof NodeFault || job.signal.aborted) throw error;
      node.failed(Date.now());
      const late = deadline.signal.aborted;
      const shown = late
        ? new ApiError("upstream_timeout", "The node did not answer in time.")
        : new ApiError("upstream_disconnect", "The node could not be reached.");
      throw new NodeFault(shown, !late, error instanceof Error ? error.message : String(error));
    } finally {
      clearTimeout(timer);
    }
  } finally {
    if (!streaming) lease.release();
  }
}

async function send(node: NodeState, job: Job, deadline: AbortSignal): Promise<Response> {
  const { account, target, body } = job;
  const signature = await node.signer.sign({ method: "POST", target, account, body });
  return fetch(node.config.url + target, {
    method: "POST",
    headers: { ...signature, "content-type": "application/json", "x-request-id": job.requestId },
    body,
    redirect: "manual",
    signal: AbortSignal.any([job.signal, deadline]),
  });
}

/** An error some servers put as the first event of a 200 stream becomes a status (litellm #25492). */
async function checkFirst(events: EventReader, node: NodeState): Promise<void> {
  const first = await events.peek();
  if (first === undefined) throw new Error("the stream ended before its first event");
  if (!first.includes('"error"')) return;
  const error = errorOf(first);
  if (error) {
    await events.cancel();
    throw fault(node, error, isErrorCode(error.code) ? ERRORS[error.code].status : 502);
  }
}

async function refusal(node: NodeState, response: Response): Promise<NodeFault> {
  const text = await readText(response, EDGE.nodeErrorBytes).catch(() => "");
  const error = errorOf(text) ?? { message: `The node answered with status ${response.status}.` };
  const after = Number(response.headers.get("retry-after"));
  return fault(node, error, response.status, after > 0 ? after : undefined);
}

interface OpenAiError {
  message: string;
  code?: unknown;
  param?: unknown;
}

function errorOf(text: string): OpenAiError | undefined {
  try {
    const error = JSON.parse(text)?.error;
    return typeof error?.message === "string" ? error : undefined;
  } catch {
    return undefined;
  }
}

/** A node's error in our codes. What concerns edge and node only (signatures, redirects) is not told to the client. */
function fault(node: NodeState, error: OpenAiError, status: number, retryAfter?: number): NodeFault {
  const elsewhere = RETRYABLE.has(status) || status < 400 || status === 401;
  if (status >= 500 || status < 400 || status === 401) node.failed(Date.now());
  if (status < 400 || status === 401) return unusable(node, `status ${status}: ${error.message}`);
  const code = isErrorCode(error.code) ? error.code : codeOf(status);
  const param = typeof error.param === "string" ? error.param : undefined;
  return new NodeFault(new ApiError(code, error.message, { param, retryAfter }), elsewhere);
}

function unusable(node: NodeState, detail: string): NodeFault {
  node.failed(Date.now());
  return new NodeFault(new ApiError("upstream_error", "The node's answer was not usable."), true, detail);
}

function codeOf(status: number): ErrorCode {
  if (status === 404) return "model_not_found";
  if (status === 408) return "request_timeout";
  if (status === 413) return "body_too_large";
  if (status === 429) return "rate_limit_exceeded";
  if (status < 500) return "invalid_value";
  return status === 503 ? "no_node" : "upstream_error";
}

function noNode(): ApiError {
  return new ApiError("no_node", "No node is ready for this model.", { retryAfter: 2 });
}

function isEventStream(response: Response): boolean {
  return response.headers.get("content-type")?.startsWith("text/event-stream") ?? false;
}

async function readText(response: Response, limit: number): Promise<string> {
  if (!response.body) return "";
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return text + decoder.decode();
    size += value.byteLength;
    if (size > limit) {
      await reader.cancel();
      throw new Error(`the answer is larger than ${limit} bytes`);
    }
    text += decoder.decode(value, { stream: true });
  }
}
