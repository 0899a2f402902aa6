// Page tags, the host's side: which page was granted to whom under which generation. The device compares what a sequence
// was granted with what its pages are before it reads them (native/ops/page_tags).
//
//   issue    a page gets a new owner          generation + 1, even to odd: a live page's generation is odd
//   retire   a page gets no owner             odd to even
//   bind     a sequence is granted a page     with the generation that issue returned or the prefix entry carries,
//                                             never the one that the tables below hold now
//
// Changes are collected and travel with the next step, ahead of everything that it reads.
import { PageHistory } from "./page-history.ts";
import { TAG_LAYOUT as T, TAG_CAUSES, type TagCause } from "./tag-layout.ts";

export const INTEGRITY_MODES = ["off", "tags"] as const;
export type IntegrityMode = (typeof INTEGRITY_MODES)[number];

/** What a row of a step was for: pages are counted by it. */
export const PHASES = ["prefill", "prefix", "decode", "restore"] as const;

/** An account: 64 bits of the root of its prefix keys, which no client can choose. */
export interface Account {
  readonly low: number;
  readonly high: number;
}

/** Where a sequence is and who it belongs to, for bind(). */
export interface Holder {
  readonly slot: number;
  readonly epoch: number;
  readonly account: Account;
}

export interface TagStats {
  /** [phase] pages that rows read or wrote, and those of them that the device compared: all, unless a check is missing. */
  readonly pagesRead: Float64Array;
  readonly pagesChecked: Float64Array;
  /** [cause] rows of requests that failed; the self-test's don't count. */
  readonly failures: Float64Array;
  stepsChecked: number;
  /** Prefix entries whose page had changed hands. */
  staleEntries: number;
}

/** How the engine keeps track of pages. The null tracker does nothing and holds nothing. */
export interface PageTracker {
  readonly mode: IntegrityMode;
  /** Null: nothing is counted because nothing is checked. */
  readonly stats: TagStats | null;
  readonly history: PageHistory | null;
  /** @param root of the account's prefix keys, hex */
  account(root: string): Account;
  /** Room for the generations of `pages` grants; none when nothing is tracked. */
  grants(pages: number): Int32Array;
  /** The page is handed out anew. Returns the generation that goes with the grant. */
  issue(page: number, account: Account): number;
  /** The page is nobody's any more. */
  retire(page: number): void;
  /** The sequence may use `page`, granted under `generation`, as its page `logical`. */
  bind(holder: Holder, logical: number, page: number, generation: number): void;
  /** False: a prefix entry of this generation is stale, its page has changed hands. */
  share(page: number, generation: number): boolean;
  /** False: a grant of this generation is void, the page is not its holder's to give back. */
  holds(page: number, generation: number): boolean;
  /** The changes since the last step, for `step`, valid until the next call; null when nothing is tracked. */
  check(step: number): Int32Array | null;
  /**
   * Why row `row` of `step` must not be used; null when it may. `pages` is what the row reads or writes.
   * A verdict that is missing, of another step, or of another row, is a failure.
   */
  verdict(verdicts: Int32Array | null, row: number, of: VerdictOf): TagCause | null;
}

export interface VerdictOf {
  step: number;
  slot: number;
  epoch: number;
  /** Index into PHASES. */
  phase: number;
  pages: number;
}

const NOBODY: Account = { low: 0, high: 0 };
const NO_GRANTS = new Int32Array(0);

export const NULL_TRACKER: PageTracker = {
  mode: "off",
  stats: null,
  history: null,
  account: () => NOBODY,
  grants: () => NO_GRANTS,
  issue: () => 0,
  retire: () => {},
  bind: () => {},
  share: () => true,
  holds: () => true,
  check: () => null,
  verdict: () => null,
};

export class TagTracker implements PageTracker {
  readonly mode = "tags";
  readonly history = new PageHistory();
  readonly stats: TagStats = {
    pagesRead: new Float64Array(PHASES.length),
    pagesChecked: new Float64Array(PHASES.length),
    failures: new Float64Array(TAG_CAUSES.length),
    stepsChecked: 0,
    staleEntries: 0,
  };
  readonly #generation: Int32Array;
  #updates = new Int32Array(64 * T.update_words);
  #count = 0;
  /** [pages] the page's record among the updates; 0: none. */
  readonly #recordOf: Int32Array;
  /** [slots] the epoch of the stay whose beginning is known. */
  readonly #epochOf = new Map<number, number>();
  #sent = false;
  #step = 0;
  #checkedStep = 0;

  /** `pages` counts the null page. */
  constructor(pages: number) {
    this.#generation = new Int32Array(pages);
    this.#recordOf = new Int32Array(pages);
  }

  account(root: string): Account {
    return {
      low: Number.parseInt(root.slice(0, 8), 16) | 0,
      high: Number.parseInt(root.slice(8, 16), 16) | 0,
    };
  }

  grants(pages: number): Int32Array {
    return new Int32Array(pages);
  }

  issue(page: number, account: Account): number {
    const generation = (this.#generation[page] + 1) | 1;
    this.#generation[page] = generation;
    this.#pageRecord(T.issue, page, account);
    this.history.add("issue", page, this.#generation[page], this.#step);
    return this.#generation[page];
  }

  retire(page: number): void {
    this.#generation[page] = (this.#generation[page] | 1) + 1;
    this.#pageRecord(T.retire, page, NOBODY);
    this.history.add("retire", page, this.#generation[page], this.#step);
  }

  bind({ slot, epoch, account }: Holder, logical: number, page: number, generation: number): void {
    if (this.#epochOf.get(slot) !== epoch) {
      this.#dropRecords(slot);
      this.#epochOf.set(slot, epoch);
      this.#record(T.begin, slot, epoch);
    }
    this.#record(T.bind, slot, logical, page, generation, account.low, account.high, epoch);
  }

  share(page: number, generation: number): boolean {
    if (this.#generation[page] === generation) {
      this.history.add("share", page, generation, this.#step);
      return true;
    }
    this.stats.staleEntries++;
    return false;
  }

  holds(page: number, generation: number): boolean {
    return this.#generation[page] === generation;
  }

  check(step: number): Int32Array {
    this.#begin();
    this.#step = step;
    this.#sent = true;
    this.#updates[0] = this.#count;
    return this.#updates.subarray(0, (this.#count + 1) * T.update_words);
  }

  verdict(verdicts: Int32Array | null, row: number, of: VerdictOf): TagCause | null {
    const { stats } = this;
    const at = row * T.verdict_words;
    const word = (name: number) => verdicts?.[at + name] ?? -1;
    const known =
      word(T.v_step) === (of.step | 0) &&
      word(T.v_step_high) === Math.floor(of.step / 2 ** 32) &&
      word(T.v_slot) === of.slot &&
      word(T.v_epoch) === of.epoch &&
      (word(T.v_status) === T.status_ok || word(T.v_status) === T.status_failed);
    const failed = known && word(T.v_status) === T.status_failed;
    // A row that failed has read nothing; one without a verdict may have.
    if (!failed) stats.pagesRead[of.phase] += of.pages;
    if (known) {
      if (!failed) stats.pagesChecked[of.phase] += word(T.v_checked);
      if (this.#checkedStep !== of.step) stats.stepsChecked++;
      this.#checkedStep = of.step;
    }
    if (known && word(T.v_status) === T.status_ok && word(T.v_checked) === of.pages) return null;
    return TAG_CAUSES[failed ? word(T.v_cause) : 0];
  }

  // One record per page and step: the last one says it all.
  #pageRecord(kind: number, page: number, account: Account): void {
    const generation = this.#generation[page];
    this.#begin();
    const at = this.#recordOf[page] * T.update_words;
    if (at === 0) {
      this.#record(kind, page, generation, account.low, account.high);
      this.#recordOf[page] = this.#count;
    } else {
      this.#updates.set([kind, page, generation, account.low, account.high], at);
    }
  }

  #record(...words: number[]): void {
    this.#begin();
    const at = ++this.#count * T.update_words;
    if (at === this.#updates.length) {
      const larger = new Int32Array(2 * at);
      larger.set(this.#updates);
      this.#updates = larger;
    }
    this.#updates.fill(0, at, at + T.update_words);
    this.#updates.set(words, at);
  }

  // The first change after a step was handed its updates starts anew.
  #begin(): void {
    if (!this.#sent) return;
    this.#sent = false;
    for (let i = 1; i <= this.#count; i++) {
      const at = i * T.update_words;
      const kind = this.#updates[at];
      if (kind === T.issue || kind === T.retire) this.#recordOf[this.#updates[at + 1]] = 0;
    }
    this.#count = 0;
  }

  // A slot that two sequences had since the last step: the device applies records in any order.
  #dropRecords(slot: number): void {
    this.#begin();
    for (let i = 1; i <= this.#count; i++) {
      const at = i * T.update_words;
      const kind = this.#updates[at];
      if ((kind === T.begin || kind === T.bind) && this.#updates[at + 1] === slot)
        this.#updates[at] = T.nothing;
    }
  }
}
