// Prompts without blocking: short ones are rendered and tokenized on the spot, long ones (about 2 s per megabyte) in a
// worker thread, one after another, each with a time limit.

import { Worker } from "node:worker_threads";
import type { ChatRequest } from "../contract/chat.ts";
import { ApiError, type ErrorCode } from "../contract/errors.ts";
import { type ControlPolicy, chatPrompt, type ModelText, plainPrompt } from "./model-text.ts";

export type PromptJob =
  | { kind: "chat"; request: ChatRequest; policy: ControlPolicy }
  | { kind: "plain"; text: string; param: string; policy: ControlPolicy };

/** What the worker answers. */
export type PromptReply =
  | { ids: Int32Array<ArrayBuffer> }
  | { error: { code: ErrorCode; message: string; param: string | null } };

interface Waiting {
  job: PromptJob;
  signal: AbortSignal;
  resolve: (ids: Int32Array) => void;
  reject: (error: ApiError) => void;
}

/** Above so many bytes of request a prompt goes to the worker: some 30 ms of tokenizing. */
const INLINE_BYTES = 16 * 1024;
const MAX_WAITING = 256;
const LIMIT_MS = 60_000;

export function makePrompt(model: ModelText, job: PromptJob): Int32Array {
  return job.kind === "chat"
    ? chatPrompt(model, job.request, job.policy)
    : plainPrompt(model, job.text, job.policy, job.param);
}

export class Prompts {
  private readonly model: ModelText;
  private readonly dir: string;
  private readonly limitMs: number;
  private readonly waiting: Waiting[] = [];
  private worker: Worker | undefined;
  private busy = false;

  /** @param dir model folder, from which the worker loads its own copy of `model` at the first long prompt */
  constructor(model: ModelText, dir: string, limitMs = LIMIT_MS) {
    this.model = model;
    this.dir = dir;
    this.limitMs = limitMs;
  }

  /**
   * @param bytes size of the request, which decides where the work is done
   * @throws ApiError of the prompt; queue_full; template_error past the time limit; client_closed
   */
  async make(job: PromptJob, bytes: number, signal: AbortSignal): Promise<Int32Array> {
    if (bytes <= INLINE_BYTES) return makePrompt(this.model, job);
    if (this.waiting.length >= MAX_WAITING) {
      throw new ApiError("queue_full", "Too many long prompts are waiting.", { retryAfter: 1 });
    }
    return new Promise((resolve, reject) => {
      this.waiting.push({ job, signal, resolve, reject });
      this.next();
    });
  }

  /** Ends the worker; called by the server's shutdown. */
  async close(): Promise<void> {
    for (const { reject } of this.waiting.splice(0))
      reject(new ApiError("draining", "The node is shutting down."));
    await this.worker?.terminate();
  }

  private next(): void {
    if (this.busy) return;
    const current = this.waiting.shift();
    if (current === undefined) return;
    if (current.signal.aborted) {
      current.reject(new ApiError("client_closed", "The client closed the connection."));
      this.next();
      return;
    }
    this.busy = true;
    this.worker ??= this.start();
    const { worker } = this;
    const settle = (run: () => void) => {
      clearTimeout(timer);
      worker.removeAllListeners();
      worker.unref();
      this.busy = false;
      run();
      this.next();
    };
    const discard = (error: ApiError) => {
      this.worker = undefined;
      worker.terminate().catch(() => {});
      settle(() => current.reject(error));
    };
    const timer = setTimeout(() => {
      discard(new ApiError("template_error", "The prompt took too long to prepare.", { param: "messages" }));
    }, this.limitMs);
    worker.ref();
    worker.on("message", (reply: PromptReply) => {
      settle(() => {
        if ("ids" in reply) current.resolve(reply.ids);
        else
          current.reject(
            new ApiError(reply.error.code, reply.error.message, { param: reply.error.param ?? undefined }),
          );
      });
    });
    worker.on("error", (cause) => discard(new ApiError("internal_error", "Internal error.", { cause })));
    worker.on("exit", () => discard(new ApiError("internal_error", "Internal error.")));
    worker.postMessage(current.job);
  }

  private start(): Worker {
    return new Worker(new URL("./prompt-worker.ts", import.meta.url), { workerData: { dir: this.dir } });
  }
}
