// What must hold after every step, recounted from scratch. Tests check it every step; a violation throws.

import { PAGE_TOKENS } from "../kv/format.ts";
import { PageState } from "../kv/pages.ts";
import type { EngineRequest } from "./request.ts";
import type { Sequences } from "./sequences.ts";
import type { StepRecord } from "./step-record.ts";

export class InvariantError extends Error {}

interface Flight {
  record: StepRecord;
  step: number;
  /** Pages that a row of the step reads or writes. */
  pages: Set<number>;
  /** Pages whose last token the step writes. */
  fills: number[];
}

export class InvariantChecker {
  readonly #sequences: Sequences;
  readonly #flights: Flight[] = [];
  /** Pages completely written by completed steps since they were last free. */
  readonly #written = new Set<number>();

  constructor(sequences: Sequences) {
    this.#sequences = sequences;
  }

  submitting(record: StepRecord): void {
    const flight: Flight = { record, step: record.step, pages: new Set(), fills: [] };
    const seen = new Set<EngineRequest>();
    for (let row = 0; row < record.rows; row++) {
      const request = record.requests[row]!;
      if (seen.has(request)) fail(`request ${request.handle} has two rows in step ${record.step}`);
      seen.add(request);
      if (request.slot < 0)
        fail(`step ${record.step} has a row of request ${request.handle}, which has no slot`);
      const after = record.after[row];
      if (after > request.pageCount * PAGE_TOKENS) fail(`request ${request.handle} computes past its pages`);
      for (let i = 0; i * PAGE_TOKENS < after; i++) {
        flight.pages.add(request.pages[i]);
        if ((i + 1) * PAGE_TOKENS <= after) flight.fills.push(request.pages[i]);
      }
    }
    this.#flights.push(flight);
  }

  completing(record: StepRecord): void {
    const flight = this.#flights.shift();
    if (!flight || flight.step !== record.step) fail(`step ${record.step} completed out of order`);
    for (const page of flight!.fills) this.#written.add(page);
  }

  check(): void {
    this.#checkCounts();
    this.#checkTables();
    this.#checkFlights();
    this.#checkPrefix();
    this.#checkQueues();
  }

  // free + cached + owned (+ those behind the fence) == total; the counters agree with the states.
  #checkCounts(): void {
    const { pool } = this.#sequences;
    const count = [0, 0, 0, 0, 0, 0];
    for (const state of pool.state) count[state]++;
    const told = [pool.free, pool.cached, pool.owned, pool.fenced, 1, pool.quarantined];
    if (count.join() !== told.join())
      fail(`page states ${count} (free, cached, owned, fenced, null, quarantined), told ${told}`);
    if (pool.state[0] !== PageState.null || pool.refs[0] !== 0) fail("the null page is in use");
  }

  // A page's reference count is the number of tables that hold it; it is owned exactly when that is not 0.
  #checkTables(): void {
    const { pool, running, waiting } = this.#sequences;
    const refs = new Int32Array(pool.refs.length);
    for (const request of running) for (let i = 0; i < request.pageCount; i++) refs[request.pages[i]]++;
    for (const request of waiting)
      if (request.pageCount > 0) fail(`request ${request.handle} waits with pages`);
    for (let page = 0; page < refs.length; page++) {
      if (refs[page] !== pool.refs[page])
        fail(`page ${page}: ${refs[page]} tables, ${pool.refs[page]} references`);
      if (refs[page] > 0 !== (pool.state[page] === PageState.owned)) fail(`page ${page} in the wrong state`);
      if (pool.state[page] === PageState.free) this.#written.delete(page);
    }
  }

  #checkFlights(): void {
    const { pool } = this.#sequences;
    for (const flight of this.#flights) {
      for (const page of flight.pages) {
        const state = pool.state[page];
        if (state === PageState.free || state === PageState.cached) {
          fail(`page ${page} can be handed out while step ${flight.step} may touch it`);
        }
      }
    }
  }

  #checkPrefix(): void {
    const { pool, prefix } = this.#sequences;
    const visible = new Set<number>();
    for (const page of prefix.pages()) {
      if (visible.has(page)) fail(`page ${page} is visible under two keys`);
      visible.add(page);
      if (pool.state[page] === PageState.free) fail(`page ${page} is free and visible`);
      if (!this.#written.has(page)) fail(`page ${page} is visible before it is written`);
    }
    for (let page = 1; page < pool.state.length; page++) {
      if (pool.state[page] === PageState.cached && !visible.has(page))
        fail(`page ${page} is cached, not visible`);
    }
  }

  #checkQueues(): void {
    const { running, waiting, slots } = this.#sequences;
    const taken = new Set<number>();
    for (const request of running) {
      if (request.done) fail(`request ${request.handle} has ended and runs`);
      if (request.slot < 0 || taken.has(request.slot)) fail(`slot ${request.slot} is taken twice or is none`);
      if (request.gap < 0) fail(`request ${request.handle} computed more than it has`);
      taken.add(request.slot);
    }
    for (const request of waiting) {
      if (request.done || request.slot >= 0)
        fail(`request ${request.handle} waits and has ended or has a slot`);
    }
    if (taken.size + slots.free !== slots.count)
      fail(`${taken.size} slots taken, ${slots.free} of ${slots.count} free`);
  }
}

function fail(message: string): never {
  throw new InvariantError(message);
}
