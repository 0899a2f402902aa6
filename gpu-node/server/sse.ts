// Server-sent events: one JSON value per event, comment lines while nothing happens, errors as JSON events.

import { toApiError } from "../contract/errors.ts";

export const DONE = "data: [DONE]\n\n";

export const sseEvent = (value: unknown) => `data: ${JSON.stringify(value)}\n\n`;

export interface SseOptions {
  heartbeatMs: number;
  /** Called once when the reader is gone or the stream is over. */
  onClose: () => void;
  onError: (error: unknown) => void;
}

/**
 * A response from blocks of event text. `next` is called only when the reader has taken the block before, so nothing
 * piles up here. An error of `next` becomes one `data: {"error": ...}` event and the stream ends without `[DONE]`:
 * clients throw it with its message, and none takes the answer for complete.
 */
export function sseResponse(next: () => Promise<string | undefined>, options: SseOptions): Response {
  const encoder = new TextEncoder();
  let pending: Promise<string | undefined> | undefined;
  let closed = false;
  const close = () => {
    if (closed) return;
    closed = true;
    options.onClose();
  };
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          if (pending === undefined) {
            pending = next();
            // Between two heartbeats nobody awaits it.
            pending.catch(() => {});
          }
          const block = await withHeartbeat(pending, options.heartbeatMs);
          if (closed) return;
          if (block === HEARTBEAT) {
            controller.enqueue(encoder.encode(": keep-alive\n\n"));
            return;
          }
          pending = undefined;
          if (block !== undefined) {
            controller.enqueue(encoder.encode(block));
            return;
          }
        } catch (error) {
          if (closed) return;
          options.onError(error);
          controller.enqueue(encoder.encode(sseEvent(toApiError(error).body())));
        }
        close();
        controller.close();
      },
      cancel: close,
    },
    { highWaterMark: 0 },
  );
  return new Response(body, {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
    },
  });
}

const HEARTBEAT = Symbol("heartbeat");

async function withHeartbeat<T>(promise: Promise<T>, ms: number): Promise<T | typeof HEARTBEAT> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const quiet = new Promise<typeof HEARTBEAT>((resolve) => {
    timer = setTimeout(() => resolve(HEARTBEAT), ms);
  });
  try {
    return await Promise.race([promise, quiet]);
  } finally {
    clearTimeout(timer);
  }
}
