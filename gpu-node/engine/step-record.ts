// What the host remembers of a step in flight: its rows in the order of the plan.
import type { EngineRequest } from "./request.ts";

/** Reused: a ring of them is allocated once. Rows [0, rows) are valid. */
export class StepRecord {
  step = 0;
  ticket = 0;
  rows = 0;
  tokens = 0;
  /** Rows whose token is sampled; their results come in row order. */
  samples = 0;
  plan: Int32Array = new Int32Array(0);
  readonly requests: (EngineRequest | null)[];
  readonly epochs: Int32Array;
  /** Tokens of the sequence whose KV exists once the step is done. */
  readonly after: Int32Array;
  readonly sampled: Uint8Array;
  /** The row's slot, and what it is for: an index into PHASES (kv/tags.ts). */
  readonly slots: Int32Array;
  readonly phases: Uint8Array;
  /** Changes of page tags that go with the step; null when nothing is tracked. */
  tags: Int32Array | null = null;

  constructor(maxRows: number) {
    this.requests = new Array(maxRows).fill(null);
    this.epochs = new Int32Array(maxRows);
    this.after = new Int32Array(maxRows);
    this.sampled = new Uint8Array(maxRows);
    this.slots = new Int32Array(maxRows);
    this.phases = new Uint8Array(maxRows);
  }

  begin(step: number): void {
    this.requests.fill(null, 0, this.rows);
    this.step = step;
    this.rows = this.tokens = this.samples = 0;
  }

  add(request: EngineRequest, fresh: number, sampled: boolean): void {
    const row = this.rows++;
    this.requests[row] = request;
    this.epochs[row] = request.epoch;
    this.after[row] = request.computed;
    this.sampled[row] = sampled ? 1 : 0;
    this.slots[row] = request.slot;
    this.phases[row] = request.phase;
    this.tokens += fresh;
    if (sampled) this.samples++;
  }

  /** True when the row's request is still in the stay that the row was scheduled in. */
  current(row: number): boolean {
    const request = this.requests[row];
    return request !== null && request.epoch === this.epochs[row];
  }
}
