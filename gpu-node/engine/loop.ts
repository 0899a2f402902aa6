// The engine's loop, one tick at a time: drain the inbox, schedule, submit, wait for the oldest step, apply, post.
// Clock, runner, inbox and outbox are given, so a test drives it step by step.
import type { EngineErrorCode, FinishReason, GenerateRequest } from "../contract/engine.ts";
import type { TagCause } from "../kv/tag-layout.ts";
import { type IntegrityMode, TagTracker } from "../kv/tags.ts";
import { applyStep } from "./apply.ts";
import { Integrity, type IntegrityOptions } from "./integrity.ts";
import { InvariantChecker } from "./invariants.ts";
import type { EndedRequest, InboxMessage } from "./messages.ts";
import type { EngineRequest } from "./request.ts";
import { PACKED_TOKEN, packToken } from "./results.ts";
import type { Runner } from "./runner.ts";
import { Scheduler, type SchedulerOptions } from "./scheduler.ts";
import type { SequenceEvents } from "./sequences.ts";
import { COUNTERS, type Counter } from "./status-board.ts";
import type { StepRecord } from "./step-record.ts";

export interface Clock {
  /** Milliseconds. */
  now(): number;
}

export interface Inbox {
  next(): InboxMessage | null;
}

export interface Outbox {
  /** `tokens` as packToken lays them out; valid during the call. */
  post(tokens: Int32Array, ended: EndedRequest[]): void;
}

export interface LoopOptions extends SchedulerOptions, IntegrityOptions {
  /** Must be that of the runner; default off. */
  integrity?: IntegrityMode;
  /** Checks every invariant after every step and throws what is violated. */
  invariants?: boolean;
}

export class Loop implements SequenceEvents {
  readonly scheduler: Scheduler;
  readonly counters = {} as Record<Counter, number>;
  /** A close message came. */
  closed = false;
  readonly #runner: Runner;
  readonly #clock: Clock;
  readonly #inbox: Inbox;
  readonly #outbox: Outbox;
  readonly #requests = new Map<number, EngineRequest>();
  readonly #inFlight: StepRecord[] = [];
  readonly #invariants: InvariantChecker | null;
  readonly #integrity: Integrity | null = null;
  /** The steps being applied, and last submitted. */
  #applying = 0;
  #submitted = 0;
  #tokens: Int32Array;
  #tokensEnd = 0;
  #ended: EndedRequest[] = [];
  #draining = false;

  constructor(runner: Runner, clock: Clock, inbox: Inbox, outbox: Outbox, options: LoopOptions) {
    this.#runner = runner;
    this.#clock = clock;
    this.#inbox = inbox;
    this.#outbox = outbox;
    const tracker = options.integrity === "tags" ? new TagTracker(runner.limits.pages) : undefined;
    this.scheduler = new Scheduler(runner.limits, runner.depth, { tracker, ...options }, this);
    const { sequences } = this.scheduler;
    if (sequences.tracker.mode !== "off") {
      this.#integrity = new Integrity(sequences, runner, clock.now(), options);
    }
    this.#tokens = new Int32Array(runner.limits.maxRows * PACKED_TOKEN);
    this.#invariants = options.invariants ? new InvariantChecker(sequences) : null;

    for (const name of COUNTERS) this.counters[name] = 0;
  }

  /** Longest sequence, prompt and output. */
  get maxLen(): number {
    return this.scheduler.sequences.maxLen;
  }

  get stepsInFlight(): number {
    return this.#inFlight.length;
  }

  /** Requests that have not ended. */
  get live(): number {
    return this.#requests.size;
  }

  /** What became of the integrity of pages; null: nothing is checked. */
  get integrity(): Integrity | null {
    return this.#integrity;
  }

  /** One turn. False: nothing to do until the inbox has a message. Throws what the runner throws: the engine is lost. */
  tick(): boolean {
    const { counters } = this;
    this.#drainInbox();
    let submitted = false;
    if (this.#inFlight.length < this.#runner.depth) {
      const started = this.#clock.now();
      if (!this.#draining)
        this.#integrity?.tick(started, (handle, request) => this.scheduler.add(handle, request));
      const record = this.scheduler.schedule();
      const scheduled = this.#clock.now();
      counters.schedule_ms += scheduled - started;
      if (record) {
        this.#invariants?.submitting(record);
        record.ticket = this.#runner.submit(record.plan, record.tags);
        this.#submitted = record.step;
        counters.submit_ms += this.#clock.now() - scheduled;
        this.#inFlight.push(record);
        submitted = true;
      }
    }
    const complete =
      this.#inFlight.length > 0 && (!submitted || this.#inFlight.length === this.#runner.depth);
    if (complete) this.#complete(this.#inFlight[0]);
    this.#flush();
    this.#invariants?.check();
    return submitted || complete;
  }

  #complete(record: StepRecord): void {
    const { counters } = this;
    const started = this.#clock.now();
    const results = this.#wait(record);
    const done = this.#clock.now();
    this.#inFlight.shift();
    // Aborts that came during the step are taken first: an aborted request gets no token of it.
    this.#drainInbox();
    this.#invariants?.completing(record);
    this.#applying = record.step;
    const verdicts = this.#runner.verdicts?.() ?? null;
    const applied = applyStep(this.scheduler.sequences, record, { results, verdicts }, this);
    this.#integrity?.count(counters);
    counters.steps++;
    counters.rows += record.rows;
    counters.computed_tokens += record.tokens;
    counters.generated_tokens += applied.tokens;
    counters.stale_rows += applied.stale;
    counters.preemptions = this.scheduler.sequences.preemptions;
    counters.evictions = this.scheduler.sequences.pool.evictions;
    counters.wait_ms += done - started;
    counters.apply_ms += this.#clock.now() - done;
  }

  // A step that fails for a NaN is counted as well.
  #wait(record: StepRecord): Int32Array {
    try {
      return this.#runner.wait(record.ticket);
    } finally {
      const { saturated, nan } = this.#runner.kvFaults();
      this.counters.kv_saturated = saturated;
      this.counters.kv_nan = nan;
    }
  }

  #drainInbox(): void {
    for (let message = this.#inbox.next(); message; message = this.#inbox.next()) {
      if (message.kind === "generate") this.#add(message.handle, message.request);
      else if (message.kind === "abort") this.#abort(message.handle);
      else if (message.kind === "drain") this.#draining = true;
      else if (message.kind === "cut") this.#cut();
      else this.closed = true;
    }
  }

  #add(handle: number, request: GenerateRequest): void {
    if (this.#draining) {
      this.#end({ handle, code: "draining", message: "the node is shutting down" });
      return;
    }
    const added = this.scheduler.add(handle, request);
    if (!added.done) this.#requests.set(handle, added);
  }

  // Of a request that has ended already this is no error: the two messages crossed.
  #abort(handle: number): void {
    const request = this.#requests.get(handle);
    if (request) this.scheduler.sequences.finish(request, "abort");
  }

  #cut(): void {
    this.#draining = true;
    for (const request of [...this.#requests.values()]) {
      this.scheduler.sequences.fail(request, "draining", "the node is shutting down");
    }
  }

  token(request: EngineRequest, results: Int32Array, index: number): void {
    if (this.#integrity?.isSelfTest(request)) {
      this.#integrity.selfTestToken(request, this.#applying, this.#submitted);
      return;
    }
    const logprobs = request.source.sampling.topLogprobs >= 0;
    this.#tokensEnd = packToken(this.#tokens, this.#tokensEnd, request.handle, results, index, logprobs);
  }

  distrusted(
    request: EngineRequest,
    cause: TagCause,
    record: StepRecord,
    row: number,
    verdicts: Int32Array | null,
  ): void {
    this.#integrity!.rowFailed(request, cause, record, row, verdicts, this.#clock.now());
  }

  staleEntry(request: EngineRequest, logical: number, page: number, generation: number): void {
    this.#integrity!.staleEntry(request, logical, page, generation, this.#clock.now());
  }

  finish(request: EngineRequest, reason: FinishReason): void {
    if (this.#integrity?.isSelfTest(request)) {
      this.#integrity.selfTestEnded();
      return;
    }
    this.counters[`finished_${reason}`]++;
    const cachedTokens = Math.max(0, request.cachedTokens);
    const usage = { promptTokens: request.prompt, completionTokens: request.outputs, cachedTokens };
    if (request.cachedTokens >= 0) {
      this.counters.prompt_tokens += request.prompt;
      this.counters.cached_tokens += cachedTokens;
    }
    this.#end({ handle: request.handle, reason, usage });
  }

  error(request: EngineRequest, code: EngineErrorCode, message: string): void {
    if (this.#integrity?.isSelfTest(request)) {
      this.#integrity.selfTestEnded();
      return;
    }
    this.counters.errors++;
    this.#end({ handle: request.handle, code, message });
  }

  #end(ended: EndedRequest): void {
    this.#requests.delete(ended.handle);
    this.#ended.push(ended);
  }

  #flush(): void {
    if (this.#tokensEnd === 0 && this.#ended.length === 0) return;
    const ended = this.#ended;
    this.#ended = [];
    const tokens = this.#tokens.subarray(0, this.#tokensEnd);
    this.#tokensEnd = 0;
    this.#outbox.post(tokens, ended);
  }
}
