// A worker thread that makes prompts one after another, each with a time limit.

import { Worker } from "node:worker_threads";
import { ApiError, type ErrorCode } from "../contract/errors.ts";
import type { PromptJob } from "./prompts.ts";

/** What the worker answers. */
export type PromptReply =
  | { ids: Int32Array<ArrayBuffer> }
  | { error: { code: ErrorCode; message: string; param: string | null } };

interface Task {
  job: PromptJob;
  signal: AbortSignal;
  resolve: (ids: Int32Array) => void;
  reject: (error: ApiError) => void;
}

const MAX_WAITING = 256;
/** Of a worker's heap. A request of 8 MiB, which is the most, is made in it. */
const MAX_HEAP_MB = 1024;

export class PromptLane {
  private readonly dir: string;
  private readonly limitMs: number;
  private readonly waiting: Task[] = [];
  private worker: Worker | undefined;
  private current: Task | undefined;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** @param dir model folder, from which the worker loads its own copy of the text side at the first job */
  constructor(dir: string, limitMs: number) {
    this.dir = dir;
    this.limitMs = limitMs;
  }

  /** @throws ApiError of the prompt; queue_full; template_error past the time limit; client_closed */
  make(job: PromptJob, signal: AbortSignal): Promise<Int32Array> {
    if (this.waiting.length >= MAX_WAITING) {
      throw new ApiError("queue_full", "Too many long prompts are waiting.", { retryAfter: 1 });
    }
    return new Promise((resolve, reject) => {
      this.waiting.push({ job, signal, resolve, reject });
      this.next();
    });
  }

  /** Ends the worker and refuses what waits. */
  async close(): Promise<void> {
    const error = new ApiError("draining", "The node is shutting down.");
    for (const { reject } of this.waiting.splice(0)) reject(error);
    await this.discard(error);
  }

  private next(): void {
    if (this.current !== undefined) return;
    const task = this.waiting.shift();
    if (task === undefined) return;
    if (task.signal.aborted) {
      task.reject(new ApiError("client_closed", "The client closed the connection."));
      this.next();
      return;
    }
    this.worker ??= this.start();
    this.current = task;
    this.worker.ref();
    this.worker.postMessage(task.job);
    this.timer = setTimeout(() => {
      this.discard(
        new ApiError("template_error", "The prompt took too long to prepare.", { param: "messages" }),
      );
    }, this.limitMs);
  }

  private start(): Worker {
    const worker = new Worker(new URL("./prompt-worker.ts", import.meta.url), {
      workerData: { dir: this.dir },
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
    });
    worker.on("message", (reply: PromptReply) => {
      // Idle, it does not keep the process alive.
      worker.unref();
      const task = this.settle();
      if ("ids" in reply) task?.resolve(reply.ids);
      else
        task?.reject(
          new ApiError(reply.error.code, reply.error.message, { param: reply.error.param ?? undefined }),
        );
      this.next();
    });
    const lost = (cause?: unknown) => {
      if (this.worker !== worker) return;
      const full = (cause as NodeJS.ErrnoException | undefined)?.code === "ERR_WORKER_OUT_OF_MEMORY";
      this.discard(
        full
          ? new ApiError("template_error", "The prompt took too much memory to prepare.", {
              param: "messages",
            })
          : new ApiError("internal_error", "Internal error.", { cause }),
      );
    };
    worker.on("error", lost);
    worker.on("exit", () => lost());
    return worker;
  }

  /** Gives up the worker with its current task; the next task gets a new one. */
  private async discard(error: ApiError): Promise<void> {
    const { worker } = this;
    this.worker = undefined;
    this.settle()?.reject(error);
    this.next();
    await worker?.terminate();
  }

  private settle(): Task | undefined {
    clearTimeout(this.timer);
    const { current } = this;
    this.current = undefined;
    return current;
  }
}
