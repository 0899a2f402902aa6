// Which tokens of which sequences the next step computes.
//
// There is no prefill or decode phase: a sequence has computed and known tokens, a step hands out a budget of tokens.
//   1. running sequences that need one token, oldest first; short of a page, the youngest running one is preempted
//   2. running sequences with more to compute share the rest of the budget, oldest first
//   3. waiting sequences in order, while budget, slots and pages last; one that is admitted gets the pages of all its
//      known tokens at once, so sequences in prefill can't deadlock each other; one whose beginning is being computed by a
//      running sequence waits for those pages
// Preemption is recomputation: the sequence goes to the front of the queue with the tokens it has. Results of it still
// in flight are dropped (apply.ts); the sampler gives the same token again, as it depends on seed and position only.
import type { GenerateRequest } from "../contract/engine.ts";
import { PAGE_TOKENS } from "../kv/format.ts";
import type { PageTracker } from "../kv/tags.ts";
import { requestFault } from "./admission.ts";
import { type PlanLimits, PlanWriter } from "./plan.ts";
import { EngineRequest } from "./request.ts";
import { type SequenceEvents, Sequences } from "./sequences.ts";
import { StepRecord } from "./step-record.ts";

export interface SchedulerOptions {
  /** Tokens of one step; at least maxRunning, at most the runner's maxTokens. */
  maxBatchTokens: number;
  maxRunning: number;
  /** Requests that may wait; one more is refused. Preempted ones don't count. */
  maxWaiting: number;
  /** Pages that an admission leaves available, unless nothing runs. */
  watermarkPages: number;
  /** False: every prompt is computed in full. */
  prefixCache?: boolean;
  /** For tests: preempts the youngest running sequence every so many steps; 0 = never. */
  preemptEvery?: number;
  /** For tests: fixed secret of the prefix cache. */
  prefixSecret?: string;
  /** Who keeps track of pages; default nobody. */
  tracker?: PageTracker;
}

const OUT_OF_USE = "too many KV pages are out of use";

export class Scheduler {
  readonly sequences: Sequences;
  readonly #options: SchedulerOptions;
  readonly #vocab: number;
  readonly #records: StepRecord[] = [];
  readonly #writers: PlanWriter[] = [];
  readonly #extend: EngineRequest[] = [];
  readonly #decode: EngineRequest[] = [];
  #writer: PlanWriter;
  #step = 0;
  #tokens = 0;

  /** `depth`: steps that may be in flight; their records and plans are a ring. */
  constructor(limits: PlanLimits, depth: number, options: SchedulerOptions, events: SequenceEvents) {
    const { maxBatchTokens, maxRunning } = options;
    if (!(maxRunning >= 1 && maxRunning <= Math.min(limits.slots, limits.maxRows))) {
      throw new RangeError(`maxRunning is ${maxRunning}, the runner takes 1 to ${limits.slots}`);
    }
    if (!(maxBatchTokens >= maxRunning && maxBatchTokens <= limits.maxTokens)) {
      const range = `${maxRunning} (maxRunning) to ${limits.maxTokens}`;
      throw new RangeError(`maxBatchTokens is ${maxBatchTokens}, it can be ${range}`);
    }
    this.#options = options;
    this.#vocab = limits.vocab;
    this.sequences = new Sequences(limits, events, options);
    for (let i = 0; i < depth; i++) {
      this.#records.push(new StepRecord(limits.maxRows));
      this.#writers.push(new PlanWriter(limits));
    }
    this.#writer = this.#writers[0];
  }

  /** Queues a request, or ends it at once with an error when it can never run or the queue is full. */
  add(handle: number, source: GenerateRequest): EngineRequest {
    const { sequences } = this;
    const prompt = source.prompt.length;
    const room = sequences.maxLen - prompt;
    const fault = requestFault(source, this.#vocab);
    const maxTokens = fault ? 0 : Math.max(0, Math.min(Math.floor(source.maxTokens), room));
    const pages = Math.ceil((prompt + maxTokens) / PAGE_TOKENS);
    const keys = sequences.prefix.newKeys(source.salt);
    const { tracker } = sequences;
    const account = tracker.account(keys.root);
    const request = new EngineRequest(handle, source, maxTokens, keys, pages, account, tracker.grants(pages));
    if (fault) {
      sequences.fail(request, "invalid_request", fault);
    } else if (room < 1) {
      const most = sequences.maxLen - 1;
      sequences.fail(request, "prompt_too_long", `the prompt has ${prompt} tokens, at most ${most} fit`);
    } else if (sequences.queued >= this.#options.maxWaiting) {
      sequences.fail(request, "queue_full", `${this.#options.maxWaiting} requests are waiting already`);
    } else {
      sequences.enqueue(request);
    }
    return request;
  }

  /** The next step, ready to be submitted, or null when nothing can be computed now. */
  schedule(): StepRecord | null {
    const { sequences } = this;
    if (sequences.running.length === 0 && sequences.waiting.length === 0) return null;
    const step = this.#step + 1;
    this.#writer = this.#writers[step % this.#writers.length];
    this.#extend.length = this.#decode.length = this.#tokens = 0;
    const every = this.#options.preemptEvery ?? 0;
    if (every > 0 && step % every === 0 && sequences.running.length > 1) sequences.preemptYoungest();
    this.#writer.begin(step);
    sequences.slots.writeReleases(this.#writer);

    this.#continueDecodes();
    this.#continuePrefills();
    this.#admitWaiting();
    if (this.#tokens === 0) return null;

    this.#step = step;
    sequences.slots.releasesSubmitted();
    sequences.pool.submitted(step);
    return this.#writeRows(this.#records[step % this.#records.length]);
  }

  // 1. When one of them is left short of a page, or has preempted for one, no page is available to admit anyone with.
  #continueDecodes(): void {
    const { running } = this.sequences;
    for (let i = 0; i < running.length; i++) {
      const request = running[i];
      if (request.gap !== 1 || request.exhausted) continue;
      if (request.computed === request.pageCount * PAGE_TOKENS) {
        if (request.pageCount >= this.sequences.pool.usable) {
          // Pages were quarantined since it was taken. Tokens in flight still reach it.
          if (request.pending > 0) continue;
          this.sequences.fail(request, "kv_integrity", OUT_OF_USE);
          i--;
          continue;
        }
        if (!this.#onePage()) continue;
        if (request.slot < 0) break; // it was the youngest itself
        this.sequences.grow(request);
        this.#writer.pages(request.slot, request.pages, request.pageCount - 1, request.pageCount);
      }
      this.#take(request, 1);
    }
  }

  // Makes a page available, preempting from the youngest on. Pages behind the fence come back with a step in flight:
  // no reason to preempt anyone.
  #onePage(): boolean {
    const { pool } = this.sequences;
    while (pool.available === 0) {
      if (pool.fenced > 0) return false;
      this.sequences.preemptYoungest();
    }
    return true;
  }

  // 2. They own the pages of their whole prompt.
  #continuePrefills(): void {
    for (const request of this.sequences.running) {
      const left = this.#options.maxBatchTokens - this.#tokens;
      if (left === 0) return;
      if (request.gap > 1) this.#take(request, Math.min(request.gap, left));
    }
  }

  // 3. Strictly in order: nobody overtakes a request that has to wait for pages.
  #admitWaiting(): void {
    const { running, waiting } = this.sequences;
    while (waiting.length > 0 && running.length < this.#options.maxRunning) {
      const left = this.#options.maxBatchTokens - this.#tokens;
      const request = waiting[0];
      // Pages were quarantined since it was taken: it would wait for ever.
      if (request.length > this.sequences.pool.usable * PAGE_TOKENS) {
        this.sequences.fail(request, "kv_integrity", OUT_OF_USE);
        continue;
      }
      if (left === 0 || this.#writer.room < this.#writer.admissionInts(request)) return;
      if (!this.sequences.admit(running.length === 0 ? 0 : this.#options.watermarkPages)) return;
      this.#writer.pages(request.slot, request.pages, 0, request.pageCount);
      this.#writer.history(request.slot, request.tokens, 0, request.length);
      this.#writer.sampling(request.slot, request.source.sampling);
      this.#take(request, Math.min(request.gap, left));
    }
  }

  #take(request: EngineRequest, count: number): void {
    if (count === 1 && request.gap === 1) this.#decode.push(request);
    else this.#extend.push(request);
    request.scheduled = count;
    this.#tokens += count;
  }

  // The plan's rows in two ranges, [extend, decode], and the record with the same order.
  #writeRows(record: StepRecord): StepRecord {
    record.begin(this.#step);
    for (const request of this.#extend) this.#writeRow(record, request);
    this.#writer.endExtend();
    for (const request of this.#decode) this.#writeRow(record, request);
    record.plan = this.#writer.finish();
    record.tags = this.sequences.tracker.check(this.#step);
    return record;
  }

  #writeRow(record: StepRecord, request: EngineRequest): void {
    const { scheduled, computed } = request;
    const sampled = scheduled === request.gap;
    this.#writer.row(request.slot, scheduled, computed, sampled, request.epoch, request.prompt);
    request.computed += scheduled;
    if (sampled) request.pending++;
    record.add(request, scheduled, sampled);
    request.phase = request.computed < request.prompt ? 0 : 2;
  }
}
