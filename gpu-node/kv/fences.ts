// The fence of freed pages: a page waits here until the last step that may touch it has completed.

/** A FIFO of (page, step, turn), steps ascending. `turn` tells a page's current stay from an earlier, broken-off one. */
export class FenceQueue {
  #pages: Int32Array;
  #turns: Int32Array;
  #steps: Float64Array;
  #head = 0;
  #size = 0;

  constructor(capacity: number) {
    this.#pages = new Int32Array(capacity);
    this.#turns = new Int32Array(capacity);
    this.#steps = new Float64Array(capacity);
  }

  get size(): number {
    return this.#size;
  }

  push(page: number, step: number, turn: number): void {
    if (this.#size === this.#pages.length) this.#grow();
    const at = (this.#head + this.#size) % this.#pages.length;
    this.#pages[at] = page;
    this.#turns[at] = turn;
    this.#steps[at] = step;
    this.#size++;
  }

  /** Hands out, oldest first, every entry whose step is at most `completed`. */
  drain(completed: number, visit: (page: number, turn: number) => void): void {
    while (this.#size > 0 && this.#steps[this.#head] <= completed) {
      const page = this.#pages[this.#head];
      const turn = this.#turns[this.#head];
      this.#head = (this.#head + 1) % this.#pages.length;
      this.#size--;
      visit(page, turn);
    }
  }

  #grow(): void {
    const size = this.#pages.length;
    const pages = new Int32Array(2 * size);
    const turns = new Int32Array(2 * size);
    const steps = new Float64Array(2 * size);
    for (let i = 0; i < this.#size; i++) {
      const at = (this.#head + i) % size;
      pages[i] = this.#pages[at];
      turns[i] = this.#turns[at];
      steps[i] = this.#steps[at];
    }
    this.#pages = pages;
    this.#turns = turns;
    this.#steps = steps;
    this.#head = 0;
  }
}
