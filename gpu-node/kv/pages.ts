// The page pool: which page is free, cached, owned by requests, or waiting for a step to complete.
//
//            allocate                 last release                step completed, not in the prefix cache
//   free ---------------> owned ---------------------> fenced ---------------------------------------> free
//    ^                    ^   ^       pin                |
//    |  evict (LRU)       |   +--------------------------+------- step completed, in the prefix cache
//    +------- cached <----|----------------------------------------------+
//                 +-------+ pin
//
// Page 0 is the null page of padding rows and belongs to no state. A page that can't be trusted is quarantined: at once
// when nobody holds it, else instead of becoming free or cached, and for good.
import { FenceQueue } from "./fences.ts";

export const PageState = { free: 0, cached: 1, owned: 2, fenced: 3, null: 4, quarantined: 5 } as const;

export class PagePool {
  /** Pages that can be allocated: all but the null page. */
  readonly total: number;
  /** [pages] tables that hold the page. */
  readonly refs: Int32Array;
  readonly state: Uint8Array;
  /** Called before a cached page is given away: its prefix entry must go. */
  onEvict: (page: number) => void = () => {};
  /** Called when a page becomes free or quarantined: nobody may touch it any more. */
  onRetire: (page: number) => void = () => {};
  evictions = 0;

  readonly #free: Int32Array;
  #freeCount: number;
  #cachedCount = 0;
  #fencedCount = 0;
  #quarantinedCount = 0;
  readonly #suspect = new Set<number>();
  readonly #published: Uint8Array;
  readonly #turn: Int32Array;
  readonly #fence: FenceQueue;
  // Cached pages from least to most recently used: a ring through entry 0.
  readonly #next: Int32Array;
  readonly #prev: Int32Array;
  #submitted = 0;
  #completed = 0;

  /** `pages` counts the null page. */
  constructor(pages: number) {
    if (!(pages >= 2)) throw new RangeError(`a pool needs the null page and one more, got ${pages} pages`);
    this.total = pages - 1;
    this.refs = new Int32Array(pages);
    this.state = new Uint8Array(pages);
    this.state[0] = PageState.null;
    this.#published = new Uint8Array(pages);
    this.#turn = new Int32Array(pages);
    this.#next = new Int32Array(pages);
    this.#prev = new Int32Array(pages);
    this.#fence = new FenceQueue(pages);
    this.#free = new Int32Array(pages);
    this.#freeCount = this.total;
    for (let i = 0; i < this.total; i++) this.#free[i] = this.total - i;
  }

  get free(): number {
    return this.#freeCount;
  }
  get cached(): number {
    return this.#cachedCount;
  }
  get fenced(): number {
    return this.#fencedCount;
  }
  get quarantined(): number {
    return this.#quarantinedCount;
  }
  /** Pages that there are for sequences: all that are not quarantined. */
  get usable(): number {
    return this.total - this.#quarantinedCount;
  }
  get owned(): number {
    const unowned = this.#freeCount + this.#cachedCount + this.#fencedCount + this.#quarantinedCount;
    return this.total - unowned;
  }
  /** Pages that allocate() can hand out now. */
  get available(): number {
    return this.#freeCount + this.#cachedCount;
  }

  /** A page with one reference; its content is undefined. Evicts the least recently used cached page if need be. */
  allocate(): number {
    let page: number;
    if (this.#freeCount > 0) {
      page = this.#free[--this.#freeCount];
    } else {
      page = this.#next[0];
      if (page === 0) throw new Error("page pool: allocate() with no page available");
      this.onEvict(page);
      this.#unlink(page);
      this.#published[page] = 0;
      this.evictions++;
    }
    if (this.refs[page] !== 0 || page === 0) throw new Error(`page pool: page ${page} was free and in use`);
    this.refs[page] = 1;
    this.state[page] = PageState.owned;
    return page;
  }

  /** One more reference to a page of the prefix cache. */
  pin(page: number): void {
    const state = this.state[page];
    if (state === PageState.cached) this.#unlink(page);
    else if (state === PageState.fenced) this.#fencedCount--;
    else if (state !== PageState.owned) throw new Error(`page pool: pin of page ${page} in state ${state}`);
    this.#turn[page]++;
    this.refs[page]++;
    this.state[page] = PageState.owned;
  }

  /** Drops one reference. The last one puts the page behind the fence of the last submitted step. */
  release(page: number): void {
    if (this.refs[page] <= 0) throw new Error(`page pool: release of page ${page}, which nobody holds`);
    if (--this.refs[page] > 0) return;
    this.state[page] = PageState.fenced;
    this.#fencedCount++;
    if (this.#submitted <= this.#completed) this.#settle(page, this.#turn[page]);
    else this.#fence.push(page, this.#submitted, this.#turn[page]);
  }

  /** The page is in the prefix cache: without references it stays, until evicted. */
  publish(page: number): void {
    if (this.state[page] !== PageState.owned)
      throw new Error(`page pool: publish of page ${page}, not owned`);
    this.#published[page] = 1;
  }

  /** Takes the page out of the prefix cache: a later release frees it. */
  unpublish(page: number): void {
    if (!this.#published[page]) return;
    this.onEvict(page);
    this.#published[page] = 0;
    if (this.state[page] !== PageState.cached) return;
    this.#unlink(page);
    this.#retire(page);
  }

  /** The page is never handed out again. Whoever holds it keeps it until release. */
  quarantine(page: number): void {
    if (page <= 0 || page > this.total || this.#suspect.has(page)) return;
    this.#suspect.add(page);
    this.unpublish(page);
    if (this.state[page] !== PageState.free) return;
    this.#free[this.#free.indexOf(page)] = this.#free[--this.#freeCount];
    this.#retire(page);
  }

  submitted(step: number): void {
    this.#submitted = step;
  }

  completed(step: number): void {
    this.#completed = step;
    this.#fence.drain(step, (page, turn) => this.#settle(page, turn));
  }

  #settle(page: number, turn: number): void {
    if (this.state[page] !== PageState.fenced || this.#turn[page] !== turn) return; // pinned again meanwhile
    this.#turn[page]++;
    this.#fencedCount--;
    if (this.#published[page]) {
      this.state[page] = PageState.cached;
      this.#cachedCount++;
      const last = this.#prev[0];
      this.#next[last] = page;
      this.#prev[page] = last;
      this.#next[page] = 0;
      this.#prev[0] = page;
    } else {
      this.#retire(page);
    }
  }

  #retire(page: number): void {
    this.onRetire(page);
    if (this.#suspect.has(page)) {
      this.state[page] = PageState.quarantined;
      this.#quarantinedCount++;
    } else {
      this.state[page] = PageState.free;
      this.#free[this.#freeCount++] = page;
    }
  }

  #unlink(page: number): void {
    this.#next[this.#prev[page]] = this.#next[page];
    this.#prev[this.#next[page]] = this.#prev[page];
    this.#cachedCount--;
  }
}
