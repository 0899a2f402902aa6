// Prompts without blocking. Tokenizing takes 2 to 3 s per megabyte: short prompts are made on the spot, longer ones in a
// worker thread, very long ones in another, so that nobody waits seconds for somebody else's prompt.

import type { ChatRequest } from "../contract/chat.ts";
import { type ControlPolicy, chatPrompt, type ModelText, plainPrompt } from "./model-text.ts";
import { PromptLane } from "./prompt-lane.ts";

export type PromptJob =
  | { kind: "chat"; request: ChatRequest; policy: ControlPolicy; maxTokens: number }
  | { kind: "plain"; text: string; param: string; policy: ControlPolicy; maxTokens: number };

/** Some 20 ms of work. */
const INLINE_BYTES = 8 * 1024;
const MEDIUM_BYTES = 128 * 1024;
const LIMIT_MS = 60_000;

/** @throws ApiError of the prompt */
export function makePrompt(model: ModelText, job: PromptJob): Int32Array {
  return job.kind === "chat"
    ? chatPrompt(model, job.request, job)
    : plainPrompt(model, job.text, job.param, job);
}

export class Prompts {
  private readonly model: ModelText;
  private readonly medium: PromptLane;
  private readonly long: PromptLane;

  /** @param dir model folder that `model` was read from */
  constructor(model: ModelText, dir: string, limitMs = LIMIT_MS) {
    this.model = model;
    this.medium = new PromptLane(dir, limitMs);
    this.long = new PromptLane(dir, limitMs);
  }

  /**
   * @param bytes size of the request, which decides where the work is done
   * @throws ApiError of the prompt; queue_full; template_error past the time limit; client_closed
   */
  async make(job: PromptJob, bytes: number, signal: AbortSignal): Promise<Int32Array> {
    if (bytes <= INLINE_BYTES) return makePrompt(this.model, job);
    return (bytes <= MEDIUM_BYTES ? this.medium : this.long).make(job, signal);
  }

  /** Ends the workers; called by the server's shutdown. */
  async close(): Promise<void> {
    await Promise.all([this.medium.close(), this.long.close()]);
  }
}
