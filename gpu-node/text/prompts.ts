// Prompts without blocking. Tokenizing takes 2 to 3 s per megabyte: short prompts are made on the spot, longer ones in a
// worker thread, very long ones in another, so that nobody waits seconds for somebody else's prompt.
//
// How long a chat template runs, and how much it writes, only the checkpoint's author knows. On the spot it is stopped
// after a moment; then the prompt is made in a third worker, and short prompts go there at once for a while.

import type { ChatRequest } from "../contract/chat.ts";
import { createDeadline, DeadlinePassed, type RunWithin } from "./deadline.ts";
import { type ControlPolicy, chatPrompt, type ModelText, plainPrompt } from "./model-text.ts";
import { PromptLane } from "./prompt-lane.ts";

export type PromptJob =
  | { kind: "chat"; request: ChatRequest; policy: ControlPolicy; maxTokens: number }
  | { kind: "plain"; text: string; param: string; policy: ControlPolicy; maxTokens: number };

/** Some 20 ms of work. */
const INLINE_BYTES = 8 * 1024;
const MEDIUM_BYTES = 128 * 1024;
const LIMIT_MS = 60_000;
/** For the template of a short prompt on the spot: hundreds of times what it needs. */
const INLINE_MS = 100;
/** How much such a template may write, in characters: room for its own text around the messages. */
const INLINE_CHARACTERS = 64 * 1024;
/** For a short prompt that was not made on the spot; its worker may have to load a tokenizer first. */
const SHORT_LIMIT_MS = 10_000;
/** How long short prompts go to the worker after one that had to. */
const DETOUR_MS = 60_000;

/** @throws ApiError of the prompt; what `bounded` throws */
export function makePrompt(
  model: ModelText,
  job: PromptJob,
  bounded?: (render: () => string) => string,
): Int32Array {
  return job.kind === "chat"
    ? chatPrompt(model, job.request, job, bounded)
    : plainPrompt(model, job.text, job.param, job);
}

export class Prompts {
  private readonly model: ModelText;
  private readonly within: RunWithin = createDeadline();
  private readonly short: PromptLane;
  private readonly medium: PromptLane;
  private readonly long: PromptLane;
  /** Until when, by performance.now(), short chat prompts are not tried on the spot. */
  private detourUntil = 0;

  /** @param dir model folder that `model` was read from */
  constructor(model: ModelText, dir: string, limitMs = LIMIT_MS) {
    this.model = model;
    this.short = new PromptLane(dir, Math.min(limitMs, SHORT_LIMIT_MS));
    this.medium = new PromptLane(dir, limitMs);
    this.long = new PromptLane(dir, limitMs);
  }

  /**
   * @param bytes size of the request, which decides where the work is done
   * @throws ApiError of the prompt; queue_full; template_error past the time limit; client_closed
   */
  async make(job: PromptJob, bytes: number, signal: AbortSignal): Promise<Int32Array> {
    if (bytes > INLINE_BYTES) return (bytes <= MEDIUM_BYTES ? this.medium : this.long).make(job, signal);
    if (job.kind === "plain") return makePrompt(this.model, job);
    return this.makeInline(job) ?? this.short.make(job, signal);
  }

  /** undefined when the template takes or writes too much for this thread. */
  private makeInline(job: PromptJob): Int32Array | undefined {
    if (performance.now() < this.detourUntil) return undefined;
    try {
      return makePrompt(this.model, job, (render) => {
        const rendered = this.within(INLINE_MS, render);
        if (rendered.length > INLINE_CHARACTERS) throw new DeadlinePassed("the template wrote too much");
        return rendered;
      });
    } catch (error) {
      if (!(error instanceof DeadlinePassed)) throw error;
      this.detourUntil = performance.now() + DETOUR_MS;
      return undefined;
    }
  }

  /** Ends the workers; called by the server's shutdown. */
  async close(): Promise<void> {
    await Promise.all([this.short.close(), this.medium.close(), this.long.close()]);
  }
}
