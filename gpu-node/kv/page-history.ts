// The last transitions of pages, for incident records: a ring of fixed size.

export const TRANSITIONS = ["issue", "share", "retire", "quarantine"] as const;
export type Transition = (typeof TRANSITIONS)[number];

export interface PageTransition {
  kind: Transition;
  generation: number;
  /** The last step submitted before it. */
  step: number;
}

const CAPACITY = 4096;

export class PageHistory {
  readonly #kinds = new Uint8Array(CAPACITY);
  readonly #pages = new Int32Array(CAPACITY);
  readonly #generations = new Int32Array(CAPACITY);
  readonly #steps = new Float64Array(CAPACITY);
  #count = 0;

  add(kind: Transition, page: number, generation: number, step: number): void {
    const at = this.#count++ % CAPACITY;
    this.#kinds[at] = TRANSITIONS.indexOf(kind);
    this.#pages[at] = page;
    this.#generations[at] = generation;
    this.#steps[at] = step;
  }

  /** The last `most` transitions of a page that the ring still has, oldest first. */
  of(page: number, most = 16): PageTransition[] {
    const found: PageTransition[] = [];
    const oldest = Math.max(0, this.#count - CAPACITY);
    for (let i = this.#count - 1; i >= oldest && found.length < most; i--) {
      const at = i % CAPACITY;
      if (this.#pages[at] !== page) continue;
      const kind = TRANSITIONS[this.#kinds[at]];
      found.unshift({ kind, generation: this.#generations[at] >>> 0, step: this.#steps[at] });
    }
    return found;
  }
}
