// Server-sent events between node and client. A reader that cuts a node's bytes at event boundaries, and a stream to the
// client that shows at once when the client has left.
//
// Never tee() a stream for measuring: when the client leaves, the other branch pulls the whole generation out of the
// node. And a client that leaves before the first byte is seen by nobody (workerd tells neither request.signal nor
// anything else until a write fails), therefore heartbeats: comments between events, or white space before a JSON body.

import { ApiError } from "../gpu-node/contract/errors.ts";
import type { Lease } from "./leases.ts";
import { EDGE } from "./limits.ts";

const LF = 0x0a;
const CR = 0x0d;
const EMPTY = new Uint8Array(0);

/** Reads a node's event stream in runs of whole events. Owns the node's lease until the stream ends. */
export class EventReader {
  private readonly reader: ReadableStreamDefaultReader<Uint8Array>;
  private readonly lease: Lease;
  /** Bytes after the last complete event. */
  private rest: Uint8Array = EMPTY;
  private peeked: Uint8Array | undefined;
  private last: Uint8Array = EMPTY;

  constructor(body: ReadableStream<Uint8Array>, lease: Lease) {
    this.reader = body.getReader();
    this.lease = lease;
  }

  /** Data of the first event, left in place for `blocks`; undefined when the stream has none. Comments are dropped. */
  async peek(): Promise<string | undefined> {
    for (;;) {
      const block = await this.read();
      if (!block) return undefined;
      for (const data of dataOf(block)) {
        this.peeked = block;
        return data;
      }
    }
  }

  /**
   * Runs of whole events, as they came.
   * @throws ApiError upstream_disconnect when the node stops without `[DONE]`, upstream_timeout when it falls silent
   */
  async *blocks(): AsyncGenerator<Uint8Array> {
    try {
      for (;;) {
        const block = this.peeked ?? (await this.next());
        this.peeked = undefined;
        if (!block) break;
        this.last = block;
        yield block;
      }
      if (!isComplete(this.last)) throw gone();
    } finally {
      await this.cancel();
    }
  }

  /** Data of every event, without `[DONE]`. Throws as `blocks` does. */
  async *events(): AsyncGenerator<string> {
    for await (const block of this.blocks()) {
      for (const data of dataOf(block)) if (data !== "[DONE]") yield data;
    }
  }

  /** Stops the node. May be called more than once. */
  async cancel(): Promise<void> {
    this.lease.release();
    await this.reader.cancel().catch(() => {});
  }

  private async next(): Promise<Uint8Array | undefined> {
    const timer = timeout(EDGE.stallMs);
    try {
      const block = await Promise.race([this.read(), timer.fired]);
      if (block === timer) throw new ApiError("upstream_timeout", "The node stopped sending.");
      return block as Uint8Array | undefined;
    } catch (error) {
      throw error instanceof ApiError ? error : gone(error);
    } finally {
      timer.clear();
    }
  }

  /** Reads on until at least one event is complete. */
  private async read(): Promise<Uint8Array | undefined> {
    for (;;) {
      const { done, value } = await this.reader.read();
      if (done) return undefined;
      const bytes = this.rest.length === 0 ? value : concat(this.rest, value);
      const end = lastBoundary(bytes);
      this.rest = bytes.subarray(end);
      if (this.rest.length > EDGE.eventBytes) {
        throw new ApiError("upstream_error", "The node's answer was not usable.");
      }
      if (end > 0) return bytes.subarray(0, end);
    }
  }
}

export interface ClientStream {
  /** Whole events or a whole body; heartbeats are put between its items. */
  source: AsyncGenerator<Uint8Array>;
  heartbeat: string;
  /** Called once when the stream ended or the client left. */
  end: (left: boolean) => void;
}

/** The body of an answer: pulled by the client, with a heartbeat for every second of silence. */
export function clientStream({ source, heartbeat, end }: ClientStream): ReadableStream<Uint8Array> {
  const beat = new TextEncoder().encode(heartbeat);
  let next: Promise<IteratorResult<Uint8Array>> | undefined;
  let ended = false;
  const finish = (left: boolean) => {
    if (!ended) end(left);
    ended = true;
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        next ??= source.next();
        const timer = timeout(EDGE.heartbeatMs);
        try {
          const result = await Promise.race([next, timer.fired]);
          if (result === timer) return controller.enqueue(beat);
          next = undefined;
          const { done, value } = result as IteratorResult<Uint8Array>;
          if (!done) return controller.enqueue(value);
          finish(false);
          controller.close();
        } catch (error) {
          finish(false);
          controller.error(error);
        } finally {
          timer.clear();
        }
      },
      async cancel() {
        finish(true);
        next?.catch(() => {});
        await source.return(undefined).catch(() => {});
      },
    },
    { highWaterMark: 0 },
  );
}

interface Timer {
  /** Resolves to the timer itself. */
  fired: Promise<Timer>;
  clear(): void;
}

export function timeout(ms: number): Timer {
  let id: ReturnType<typeof setTimeout>;
  const timer: Timer = {
    fired: new Promise((resolve) => {
      id = setTimeout(() => resolve(timer), ms);
    }),
    clear: () => clearTimeout(id),
  };
  return timer;
}

/** One event with JSON data. */
export function event(value: unknown): Uint8Array {
  return new TextEncoder().encode(`data: ${JSON.stringify(value)}\n\n`);
}

export const DONE_EVENT = new TextEncoder().encode("data: [DONE]\n\n");

/** `data` of each event in a run of whole events; comments and events without data are left out. */
export function* dataOf(block: Uint8Array): Generator<string> {
  for (const text of new TextDecoder().decode(block).split(/\r?\n\r?\n/)) {
    const lines: string[] = [];
    for (const line of text.split(/\r?\n/)) {
      if (line.startsWith("data:")) lines.push(line.slice(line[5] === " " ? 6 : 5));
    }
    if (lines.length > 0) yield lines.join("\n");
  }
}

/** Position after the last blank line: `...}\n\n|dat`; 0 when there is none. */
function lastBoundary(bytes: Uint8Array): number {
  for (let i = bytes.length - 1; i > 0; i--) {
    if (bytes[i] !== LF) continue;
    if (bytes[i - 1] === LF || (bytes[i - 1] === CR && bytes[i - 2] === LF)) return i + 1;
  }
  return 0;
}

/** An answer is complete when it ends with `[DONE]` or with the node's own error. */
function isComplete(block: Uint8Array): boolean {
  let last = "";
  for (const data of dataOf(block)) last = data;
  return last === "[DONE]" || last.startsWith('{"error"');
}

function concat(a: Uint8Array, b: Uint8Array): Uint8Array {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

function gone(cause?: unknown): ApiError {
  return new ApiError("upstream_disconnect", "The node went away before the answer was complete.", { cause });
}
