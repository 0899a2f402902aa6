// From a job to the client's response. Status and headers wait a moment for the node, so that what fails at once has its
// true status; then they go out and heartbeats follow, so that a client that leaves is noticed.

import { ApiError, toApiError } from "../gpu-node/contract/errors.ts";
import { type Dialect, errorBody, requestIdHeaders } from "./errors.ts";
import { type Answer, forward, type Job } from "./forward.ts";
import type { Gateway } from "./gateway.ts";
import { EDGE } from "./limits.ts";
import { clientStream, type EventReader, event, timeout } from "./stream.ts";

/** How a dialect writes a node's OpenAI answer. */
export interface Renderer {
  dialect: Dialect;
  /** A whole answer, from the node's JSON text. */
  json(text: string): string;
  /** A stream of whole events. */
  stream(events: EventReader): AsyncGenerator<Uint8Array>;
}

export interface Call {
  gateway: Gateway;
  /** Its `signal` must be that of `abort`. */
  job: Job;
  abort: AbortController;
  renderer: Renderer;
  /** Called once when the answer has ended. */
  release: () => void;
}

/** @throws ApiError while the status can still say so */
export async function answer(call: Call): Promise<Response> {
  const { gateway, job, abort, release } = call;
  const pending = forward(gateway, job);
  const timer = timeout(job.stream ? EDGE.holdStreamMs : EDGE.holdJsonMs);
  let first: Answer | typeof timer;
  try {
    first = await Promise.race([pending, timer.fired]);
  } catch (error) {
    release();
    throw error;
  } finally {
    timer.clear();
  }
  const headers: Record<string, string> = {
    "content-type": job.stream ? "text/event-stream; charset=utf-8" : "application/json",
    "cache-control": "no-store",
    ...requestIdHeaders(job.requestId),
  };
  if ("node" in first) headers["x-edgewise-node"] = first.node;
  const end = (left: boolean) => {
    release();
    if (left) abort.abort();
  };
  if ("kind" in first && first.kind === "json") {
    release();
    return new Response(call.renderer.json(first.text), { headers });
  }
  const source = job.stream ? eventSource(call, pending) : jsonSource(call, pending);
  return new Response(clientStream({ source, heartbeat: job.stream ? ": waiting\n\n" : "\n", end }), {
    headers,
  });
}

/** Events of the answer; what fails after the headers went out is an event too, and no `[DONE]` follows. */
async function* eventSource({ job, renderer }: Call, pending: Promise<Answer>): AsyncGenerator<Uint8Array> {
  try {
    const result = await pending;
    if (result.kind !== "stream") throw new ApiError("upstream_error", "The node's answer was not usable.");
    yield* renderer.stream(result.events);
  } catch (thrown) {
    if (job.signal.aborted) return;
    const error = toApiError(thrown);
    console.warn(`request ${job.requestId}: in the stream: ${error.code}`);
    yield event(errorBody(error, renderer.dialect));
  }
}

/** A late JSON answer. Its status is out already, so that a failure can only be told in the body. */
async function* jsonSource({ job, renderer }: Call, pending: Promise<Answer>): AsyncGenerator<Uint8Array> {
  let text: string;
  try {
    const result = await pending;
    if (result.kind !== "json") throw new ApiError("upstream_error", "The node's answer was not usable.");
    text = renderer.json(result.text);
  } catch (thrown) {
    if (job.signal.aborted) return;
    const error = toApiError(thrown);
    console.warn(`request ${job.requestId}: after its headers: ${error.code}`);
    text = JSON.stringify(errorBody(error, renderer.dialect));
  }
  yield new TextEncoder().encode(text);
}
