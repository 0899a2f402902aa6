// Slots: rows of the device's per-sequence state (page table, history, sampling).
import type { PlanWriter } from "./plan.ts";

/** Every stay of a sequence in a slot has an epoch of its own, so late results of an earlier stay can't be mistaken. */
export class Slots {
  readonly count: number;
  readonly #free: Int32Array;
  #freeCount: number;
  readonly #dirty: Int32Array;
  #dirtyCount = 0;
  #epoch = 0;

  constructor(count: number) {
    this.count = count;
    this.#free = new Int32Array(count);
    this.#dirty = new Int32Array(count);
    this.#freeCount = count;
    for (let i = 0; i < count; i++) this.#free[i] = count - 1 - i;
  }

  get free(): number {
    return this.#freeCount;
  }

  take(): number {
    if (this.#freeCount === 0) throw new Error("slots: none is free");
    return this.#free[--this.#freeCount];
  }

  nextEpoch(): number {
    this.#epoch = this.#epoch === 0x7fffffff ? 1 : this.#epoch + 1;
    return this.#epoch;
  }

  /** The slot can be taken again by the next plan, which also clears it on the device. */
  give(slot: number): void {
    this.#free[this.#freeCount++] = slot;
    this.#dirty[this.#dirtyCount++] = slot;
  }

  /** Writes the clearing of every slot given back since the last submitted plan. */
  writeReleases(writer: PlanWriter): void {
    for (let i = 0; i < this.#dirtyCount; i++) writer.release(this.#dirty[i]);
  }

  /** The plan that writeReleases() wrote to is going to be submitted. */
  releasesSubmitted(): void {
    this.#dirtyCount = 0;
  }
}
