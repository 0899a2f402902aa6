// How both generation routes answer: whole or streamed, with the true status as long as nothing has been sent.

import type { Context } from "hono";
import { toApiError } from "../contract/errors.ts";
import type { Generation, IndexedEvent } from "./generation.ts";
import type { GpuNode } from "./node.ts";
import type { SequenceUsage } from "./sequence.ts";
import { DONE, sseEvent, sseResponse } from "./sse.ts";

/** The shape of one route's answers. */
export interface Dialect {
  /** Adds an event to the whole answer. */
  collect(event: IndexedEvent): void;
  /** The whole answer, after the last event. */
  whole(): object;
  /** Stream chunks for an event. */
  chunks(event: IndexedEvent): object[];
  /** The chunk after the last event, when the client asked for usage. */
  usageChunk(): object | undefined;
}

/** @param started Unix milliseconds of the request */
export async function respond(
  node: GpuNode,
  context: Context,
  generation: Generation,
  dialect: Dialect,
  stream: boolean,
  started: number,
): Promise<Response> {
  let first = true;
  const take = async () => {
    const events = await generation.take();
    if (events !== undefined && first) {
      first = false;
      node.metrics.firstToken((node.clock() - started) / 1000);
    }
    for (const { event } of events ?? []) if (event.type === "end") node.metrics.usage(event.usage);
    return events;
  };
  const over = () => {
    generation.stop();
    node.metrics.finished((node.clock() - started) / 1000);
  };
  if (!stream) {
    try {
      for (let events = await take(); events !== undefined; events = await take()) {
        for (const event of events) dialect.collect(event);
      }
      return context.json(dialect.whole());
    } finally {
      over();
    }
  }

  let begun: Promise<IndexedEvent[] | undefined> | undefined = take();
  // A client may leave before the first read: then nobody awaits this promise.
  begun.catch(() => {});
  let ended = false;
  const next = async (): Promise<string | undefined> => {
    if (ended) return undefined;
    const events = await (begun ?? take());
    begun = undefined;
    if (events !== undefined)
      return events
        .flatMap((event) => dialect.chunks(event))
        .map(sseEvent)
        .join("");
    ended = true;
    const usage = dialect.usageChunk();
    return (usage ? sseEvent(usage) : "") + DONE;
  };
  try {
    await settledWithin(begun, node.heartbeatMs);
  } catch (error) {
    over();
    throw error;
  }
  return sseResponse(next, {
    heartbeatMs: node.heartbeatMs,
    onClose: over,
    onError: (error) => {
      const { code } = toApiError(error);
      node.metrics.streamError(code);
      if (code === "internal_error") node.log("internal error", error);
    },
  });
}

/** OpenAI's usage block. A prompt is counted once however many choices it has. */
export function usageBlock(firstOfPrompt: SequenceUsage[], all: SequenceUsage[]) {
  const sum = (list: SequenceUsage[], key: keyof SequenceUsage) =>
    list.reduce((total, usage) => total + usage[key], 0);
  const prompt = sum(firstOfPrompt, "promptTokens");
  const completion = sum(all, "completionTokens");
  const reasoning = sum(all, "reasoningTokens");
  return {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: sum(firstOfPrompt, "cachedTokens") },
    ...(reasoning > 0 && { completion_tokens_details: { reasoning_tokens: reasoning } }),
  };
}

/** Waits for the promise, but only so long; rejects with it. A slow first token must not look like a dead node. */
async function settledWithin(promise: Promise<unknown>, ms: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  try {
    await Promise.race([promise, timeout]);
  } finally {
    clearTimeout(timer);
  }
}
