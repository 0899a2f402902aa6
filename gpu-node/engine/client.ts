// The main thread's side of an engine: starts its thread, turns messages into streams, restarts it after a crash.
import { once } from "node:events";
import { MessageChannel, type MessagePort, Worker } from "node:worker_threads";
import type {
  Engine,
  EngineErrorCode,
  EngineEvent,
  EngineStatus,
  GenerateRequest,
} from "../contract/engine.ts";
import { EventStream } from "./event-stream.ts";
import { type EndedRequest, type InboxMessage, isRetryable, type OutboxMessage } from "./messages.ts";
import type { RunnerOptions } from "./open-runner.ts";
import { unpackTokens } from "./results.ts";
import { COUNTERS, StatusBoard } from "./status-board.ts";
import type { SchedulerSettings, WorkerData } from "./worker.ts";

export interface EngineOptions {
  runner: RunnerOptions;
  scheduler?: SchedulerSettings;
  /** Restarts after a crash while serving; failing to load is not retried. Default 3. */
  restarts?: number;
  /** The engine is down for good: the model could not be loaded, or it crashed too often. */
  onFatal?: (message: string) => void;
  log?: (message: string) => void;
}

/**
 * Starts an engine. It loads in its own thread: watch status() or await ready(). After a crash the state is "loading"
 * again; "failed" is final.
 */
export function startEngine(options: EngineOptions): EngineClient {
  return new EngineClient(options);
}

interface Subscription {
  stream: EventStream;
  /** Drops the listener on the request's signal. */
  forget: () => void;
}

export class EngineClient implements Engine {
  maxModelLen = 0;
  vocabSize = 0;
  readonly #options: EngineOptions;
  readonly #streams = new Map<number, Subscription>();
  readonly #earlier: Record<string, number> = { engine_restarts: 0 };
  #board = new StatusBoard();
  #worker!: Worker;
  #port!: MessagePort;
  #ended!: Promise<void>;
  #handle = 0;
  #restartsLeft: number;
  #draining = false;
  #closing = false;
  #onEmpty: (() => void) | null = null;
  #ready!: PromiseWithResolvers<void>;

  constructor(options: EngineOptions) {
    this.#options = options;
    this.#restartsLeft = options.restarts ?? 3;
    this.#start();
  }

  /** Resolves when the model is loaded; rejects when it can't be. */
  ready(): Promise<void> {
    return this.#ready.promise;
  }

  generate(request: GenerateRequest, signal: AbortSignal): AsyncIterable<EngineEvent> {
    const handle = ++this.#handle;
    const abort = () => this.#send({ kind: "abort", handle });
    const stream = new EventStream(abort);
    const usage = { promptTokens: request.prompt.length, completionTokens: 0, cachedTokens: 0 };
    if (signal.aborted) stream.push({ type: "finish", reason: "abort", usage });
    else if (this.#draining || this.#closing)
      stream.push(errorEvent("draining", "the node is shutting down"));
    else if (this.#board.state === "failed") stream.push(errorEvent("engine_failed", "the engine is down"));
    else {
      signal.addEventListener("abort", abort, { once: true });
      this.#streams.set(handle, { stream, forget: () => signal.removeEventListener("abort", abort) });
      this.#send({ kind: "generate", handle, request });
    }
    return stream;
  }

  status(): EngineStatus {
    const status = this.#board.snapshot();
    if (this.#draining && status.state === "ready") status.state = "draining";
    for (const [name, value] of Object.entries(this.#earlier)) {
      status.counters[name] = (status.counters[name] ?? 0) + value;
    }
    return status;
  }

  async drain(ms: number): Promise<void> {
    this.#draining = true;
    this.#send({ kind: "drain" });
    if (await this.#emptyWithin(ms)) return;
    this.#send({ kind: "cut" });
    if (await this.#emptyWithin(1000)) return;
    this.#failStreams("draining", "the node is shutting down"); // the engine is stuck in a step
  }

  /** Ends the thread: at once between two steps, by force after 5 s. Streams that are open end with an error. */
  async close(): Promise<void> {
    if (!this.#closing) {
      this.#closing = true;
      this.#send({ kind: "close" });
    }
    const timer = setTimeout(() => void this.#worker.terminate(), 5000);
    await this.#ended;
    clearTimeout(timer);
  }

  #start(): void {
    const { port1, port2 } = new MessageChannel();
    this.#board = new StatusBoard();
    this.#port = port1;
    this.#ready = Promise.withResolvers<void>();
    this.#ready.promise.catch(() => {}); // whoever does not ask for it hears of it through onFatal
    const workerData: WorkerData = {
      runner: this.#options.runner,
      scheduler: this.#options.scheduler ?? {},
      memory: this.#board.memory,
      port: port2,
    };
    const worker = new Worker(new URL("./worker.ts", import.meta.url), { workerData, transferList: [port2] });
    this.#worker = worker;
    let reason = "its thread ended";
    port1.on("message", (message: OutboxMessage) => {
      if (message.kind === "fatal") reason = message.message;
      else this.#receive(message);
    });
    worker.on("error", (error: unknown) => {
      reason = error instanceof Error ? error.message : String(error);
    });
    // The port closes after its last message was heard.
    this.#ended = Promise.all([once(worker, "exit"), once(port1, "close")]).then(() => this.#down(reason));
  }

  #send(message: InboxMessage): void {
    this.#port.postMessage(message);
    this.#board.ring();
  }

  #receive(message: Exclude<OutboxMessage, { kind: "fatal" }>): void {
    if (message.kind === "ready") {
      this.maxModelLen = message.maxModelLen;
      this.vocabSize = message.vocabSize;
      this.#ready.resolve();
      return;
    }
    unpackTokens(message.tokens, (handle, token, logprobs) => {
      const event: EngineEvent = { type: "tokens", tokens: [token] };
      if (logprobs) event.logprobs = [logprobs];
      this.#streams.get(handle)?.stream.push(event);
    });
    for (const ended of message.ended) this.#end(ended);
  }

  #end(ended: EndedRequest): void {
    const subscription = this.#streams.get(ended.handle);
    if (!subscription) return;
    this.#streams.delete(ended.handle);
    subscription.forget();
    if ("code" in ended) subscription.stream.push(errorEvent(ended.code, ended.message));
    else subscription.stream.push({ type: "finish", reason: ended.reason, usage: ended.usage });
    if (this.#streams.size === 0) this.#onEmpty?.();
  }

  #failStreams(code: EngineErrorCode, message: string): void {
    for (const { stream, forget } of this.#streams.values()) {
      forget();
      stream.push(errorEvent(code, message));
    }
    this.#streams.clear();
    this.#onEmpty?.();
  }

  // The thread has ended: every stream ends, then the engine starts anew or stays down.
  #down(reason: string): void {
    const served = this.maxModelLen > 0 && this.#board.get("progress") === 1;
    this.#failStreams("engine_failed", `the engine failed: ${reason}`);
    for (const name of COUNTERS) this.#earlier[name] = (this.#earlier[name] ?? 0) + this.#board.get(name);
    if (this.#closing) {
      this.#board.state = "failed";
      return;
    }
    this.#options.log?.(`engine: ${reason}`);
    if (served && !this.#draining && this.#restartsLeft > 0) {
      this.#restartsLeft--;
      this.#earlier.engine_restarts++;
      this.#start();
      return;
    }
    this.#board.state = "failed";
    for (const name of COUNTERS) this.#board.set(name, 0); // they are in #earlier
    this.#ready.reject(new Error(reason));
    this.#options.onFatal?.(reason);
  }

  #emptyWithin(ms: number): Promise<boolean> {
    if (this.#streams.size === 0) return Promise.resolve(true);
    return new Promise((resolve) => {
      const timer = setTimeout(() => settle(false), ms);
      const settle = (empty: boolean) => {
        clearTimeout(timer);
        this.#onEmpty = null;
        resolve(empty);
      };
      this.#onEmpty = () => settle(true);
    });
  }
}

function errorEvent(code: EngineErrorCode, message: string): EngineEvent {
  return { type: "error", code, message, retryable: isRetryable(code) };
}
