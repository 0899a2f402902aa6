// All sequences of an engine with what they hold: pages, a slot, a place in line. Every transition is here:
//
//   enqueue -> waiting --admit--> running --leave--> ended
//                 ^                  |
//                 +----preempt-------+
import type { EngineErrorCode, FinishReason } from "../contract/engine.ts";
import { PAGE_TOKENS } from "../kv/format.ts";
import { PagePool, PageState } from "../kv/pages.ts";
import { PrefixCache } from "../kv/prefix.ts";
import type { TagCause } from "../kv/tag-layout.ts";
import { NULL_TRACKER, type PageTracker, PHASES } from "../kv/tags.ts";
import type { PlanLimits } from "./plan.ts";
import type { EngineRequest } from "./request.ts";
import { Slots } from "./slots.ts";
import type { StepRecord } from "./step-record.ts";

/** Hears what requests get. Every request ends by exactly one finish or error. */
export interface SequenceEvents {
  /** The newest token of the request; its record is `index` of `results`. */
  token(request: EngineRequest, results: Int32Array, index: number): void;
  finish(request: EngineRequest, reason: FinishReason): void;
  error(request: EngineRequest, code: EngineErrorCode, message: string): void;
  /** A row of a completed step failed its check, or was not checked: the request must not go on with its pages. */
  distrusted(
    request: EngineRequest,
    cause: TagCause,
    record: StepRecord,
    row: number,
    verdicts: Int32Array | null,
  ): void;
  /** Page `logical` of the request's prefix was cached as `page` of this generation, and is that no more. */
  staleEntry(request: EngineRequest, logical: number, page: number, generation: number): void;
}

export interface SequencesOptions {
  prefixCache?: boolean;
  prefixSecret?: string;
  tracker?: PageTracker;
}

export class Sequences {
  readonly tracker: PageTracker;
  readonly pool: PagePool;
  readonly prefix: PrefixCache;
  readonly slots: Slots;
  /** In order of arrival, as only the youngest is preempted and it is the next to be admitted. */
  readonly running: EngineRequest[] = [];
  /** First come, first served; preempted ones in front. */
  readonly waiting: EngineRequest[] = [];
  /** Longest sequence, prompt and output: what the page table, the history and the whole pool can hold. */
  readonly maxLen: number;
  preemptions = 0;
  #preemptedWaiting = 0;
  readonly #events: SequenceEvents;
  readonly #hits: Int32Array;
  readonly #hitGenerations: Int32Array;
  readonly #useCache: boolean;

  constructor(limits: PlanLimits, events: SequenceEvents, options: SequencesOptions) {
    this.tracker = options.tracker ?? NULL_TRACKER;
    this.pool = new PagePool(limits.pages);
    this.pool.onRetire = (page) => this.tracker.retire(page);
    this.prefix = new PrefixCache(this.pool, options.prefixSecret);
    this.slots = new Slots(limits.slots);
    this.maxLen = Math.min(limits.maxLen, limits.maxPages * PAGE_TOKENS, this.pool.total * PAGE_TOKENS);
    this.#events = events;
    this.#hits = new Int32Array(limits.maxPages);
    this.#hitGenerations = new Int32Array(limits.maxPages);
    this.#useCache = options.prefixCache !== false;
  }

  /** Waiting requests that have never run. */
  get queued(): number {
    return this.waiting.length - this.#preemptedWaiting;
  }

  enqueue(request: EngineRequest): void {
    this.waiting.push(request);
  }

  /**
   * Gives the first waiting request a slot and the pages of all its known tokens, cached ones first, provided `spare`
   * pages stay available and no running sequence is about to publish more of them. False: it has to wait.
   */
  admit(spare: number): boolean {
    const request = this.waiting[0];
    const { pool } = this;
    const shares = this.#useCache && !request.retried;
    const hits = shares ? this.#match(request) : 0;
    if (shares && this.#computedByOther(request, hits)) return false;
    const pages = Math.ceil(request.length / PAGE_TOKENS);
    // A hit that nobody holds counts as available until it is pinned, but can't be had for anything else.
    let available = pool.available;
    for (let i = 0; i < hits; i++) if (pool.state[this.#hits[i]] === PageState.cached) available--;
    if (pages - hits + spare > available || this.slots.free === 0) return false;

    // All hits are pinned before the first allocation, which might evict one of them.
    for (let i = 0; i < hits; i++) pool.pin(this.#hits[i]);
    for (let i = 0; i < hits; i++) {
      request.pages[i] = this.#hits[i];
      request.grants[i] = this.#hitGenerations[i];
    }
    request.publishedPages = hits;
    request.computed = request.completed = hits * PAGE_TOKENS;
    if (request.cachedTokens < 0) request.cachedTokens = request.computed;
    request.slot = this.slots.take();
    request.epoch = this.slots.nextEpoch();
    for (let i = 0; i < hits; i++) this.tracker.bind(request, i, request.pages[i], request.grants[i]);
    request.pageCount = hits;
    while (request.pageCount < pages) this.grow(request);
    request.phase = PHASES.indexOf(request.preempted ? "restore" : hits > 0 ? "prefix" : "prefill");

    this.waiting.shift();
    if (request.preempted) this.#preemptedWaiting--;
    request.preempted = false;
    this.running.push(request);
    return true;
  }

  // Whether a running sequence computes page `index` of the request's beginning, as for choices of one prompt, which
  // arrive together. Waiting for it costs nobody much: the budget goes to older sequences first anyway. And it ends: a
  // running sequence computes what it knows or leaves, and nobody is admitted before the request that waits.
  #computedByOther(request: EngineRequest, index: number): boolean {
    const end = (index + 1) * PAGE_TOKENS;
    if (end >= request.length) return false;
    const key = this.prefix.key(request.keys, request.tokens, index);
    return this.running.some(
      (other) =>
        other.publishedPages <= index &&
        other.length >= end &&
        this.prefix.key(other.keys, other.tokens, index) === key,
    );
  }

  /** One more page at the end of a running sequence; the pool has one. */
  grow(request: EngineRequest): void {
    const at = request.pageCount++;
    const page = this.pool.allocate();
    request.pages[at] = page;
    const generation = this.tracker.issue(page, request.account);
    request.grants[at] = generation;
    this.tracker.bind(request, at, page, generation);
  }

  // The hits up to the first entry whose page has changed hands, which goes: nothing was read yet, so it is a miss.
  #match(request: EngineRequest): number {
    const { keys, tokens, length } = request;
    const hits = this.prefix.match(keys, tokens, length, this.#hits, this.#hitGenerations);
    for (let i = 0; i < hits; i++) {
      if (this.tracker.share(this.#hits[i], this.#hitGenerations[i])) continue;
      this.prefix.drop(keys, tokens, i);
      this.#events.staleEntry(request, i, this.#hits[i], this.#hitGenerations[i]);
      return i;
    }
    return hits;
  }

  /** Takes everything from the youngest running sequence; it starts over from its tokens, first in line. */
  preemptYoungest(): void {
    const request = this.running.at(-1);
    if (!request) throw new Error("scheduler: nothing runs and no page is available");
    this.#release(request);
    this.running.pop();
    request.preempted = true;
    this.#preemptedWaiting++;
    this.waiting.unshift(request);
    this.preemptions++;
  }

  /** Offers the pages that completed steps have filled to the prefix cache. */
  publish(request: EngineRequest): void {
    if (!this.#useCache) return;
    const full = Math.floor(request.completed / PAGE_TOKENS);
    while (request.publishedPages < full) {
      const index = request.publishedPages++;
      const { keys, tokens, pages, grants } = request;
      this.prefix.publish(keys, tokens, index, pages[index], grants[index]);
    }
  }

  finish(request: EngineRequest, reason: FinishReason): void {
    this.#leave(request);
    this.#events.finish(request, reason);
  }

  fail(request: EngineRequest, code: EngineErrorCode, message: string): void {
    this.#leave(request);
    this.#events.error(request, code, message);
  }

  /**
   * The request's pages can't be trusted: those in `suspects` are not used again, nothing of it stays in the prefix
   * cache. It starts over once when it has told nothing yet; else it ends. True: it starts over.
   */
  distrust(request: EngineRequest, suspects: number[], message: string): boolean {
    for (const page of suspects) this.pool.quarantine(page);
    for (let i = 0; i < request.pageCount; i++) {
      if (this.tracker.holds(request.pages[i], request.grants[i])) this.pool.unpublish(request.pages[i]);
    }
    if (request.retried || request.outputs > 0) {
      this.fail(request, "kv_integrity", message);
      return false;
    }
    this.#release(request);
    this.running.splice(this.running.indexOf(request), 1);
    request.retried = true;
    request.cachedTokens = -1;
    request.preempted = true;
    this.#preemptedWaiting++;
    this.waiting.unshift(request);
    return true;
  }

  #leave(request: EngineRequest): void {
    if (request.done) throw new Error(`request ${request.handle} ended twice`);
    request.done = true;
    if (request.slot >= 0) {
      this.#release(request);
      this.running.splice(this.running.indexOf(request), 1);
      return;
    }
    const at = this.waiting.indexOf(request);
    if (at < 0) return; // refused before it was queued
    this.waiting.splice(at, 1);
    if (request.preempted) this.#preemptedWaiting--;
  }

  // Pages go back from the last to the first, so that the end of a cached prefix is evicted before its beginning. A page
  // that was granted to someone else meanwhile is not the request's to give back.
  #release(request: EngineRequest): void {
    for (let i = request.pageCount - 1; i >= 0; i--) {
      if (this.tracker.holds(request.pages[i], request.grants[i])) this.pool.release(request.pages[i]);
    }
    this.slots.give(request.slot);
    request.pageCount = request.publishedPages = 0;
    request.computed = request.completed = request.pending = 0;
    request.slot = -1;
    request.epoch = 0;
  }
}
