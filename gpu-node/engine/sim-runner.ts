// A runner without a model, for tests of everything above it. Its "attention" is a hash over the tokens that it finds
// through the page table, so a page handed out too early, shared before it was written or lost in a preemption gives
// wrong tokens. It is harsher than a real stream: a step's cells are destroyed at its submission and get their content
// at its completion, and a step reads at its completion.
import { PAGE_TOKENS } from "../kv/format.ts";
import { PLAN_LAYOUT as L, type PlanLimits } from "./plan.ts";
import type { KvFaults, Runner } from "./runner.ts";
import { floatBits } from "./sampling.ts";

export interface SimOptions {
  depth?: number;
  /** Makes wait() of this step throw, as a failed kernel would. */
  failAtStep?: number;
  /** Makes the sampler report NaN logits for every row of this step. */
  nanAtStep?: number;
  /** Real milliseconds that a step takes. */
  stepMs?: number;
}

interface SimRow {
  slot: number;
  fresh: number;
  past: number;
  sample: boolean;
  epoch: number;
  pages: Int32Array;
  poisoned: boolean;
  /** Reads and writes nothing, as a row whose pages failed their check. */
  void: boolean;
}

interface SimStep {
  step: number;
  plan: Int32Array;
  rows: SimRow[];
}

function mix(state: number, value: number): number {
  let h = Math.imul(state ^ value, 0x9e3779b1);
  h = Math.imul(h ^ (h >>> 15), 0x85ebca6b);
  return (h ^ (h >>> 13)) | 0;
}

/** The oracle: the token that follows tokens [0, length). */
export function simToken(tokens: ArrayLike<number>, length: number, vocab: number): number {
  let state = 1;
  for (let i = 0; i < length; i++) state = mix(state, tokens[i]);
  return (state >>> 0) % vocab;
}

export class SimRunner implements Runner {
  readonly limits: PlanLimits;
  readonly depth: number;
  readonly #options: SimOptions;
  readonly #pageTable: Int32Array;
  readonly #history: Int32Array;
  // Per cell of the pool: its token, the step that wrote or will write it, and whether that step has completed.
  readonly #token: Int32Array;
  readonly #writer: Float64Array;
  readonly #writerEpoch: Int32Array;
  readonly #position: Int32Array;
  readonly #committed: Uint8Array;
  readonly #steps: SimStep[] = [];

  constructor(limits: PlanLimits, options: SimOptions = {}) {
    this.limits = limits;
    this.depth = options.depth ?? 1;
    this.#options = options;
    const cells = limits.pages * PAGE_TOKENS;
    this.#pageTable = new Int32Array(limits.slots * limits.maxPages);
    this.#history = new Int32Array(limits.slots * limits.maxLen).fill(-1);
    this.#token = new Int32Array(cells).fill(-1);
    this.#writer = new Float64Array(cells);
    this.#writerEpoch = new Int32Array(cells);
    this.#position = new Int32Array(cells).fill(-1);
    this.#committed = new Uint8Array(cells);
  }

  submit(plan: Int32Array, _tags: Int32Array | null = null, voidRows?: ReadonlySet<number>): number {
    const step = plan[L.h_step_high] * 2 ** 32 + (plan[L.h_step_low] >>> 0);
    const copy = plan.slice();
    this.#visitUpdates(copy, (kind, slot, start, payload) => {
      const row = slot * this.limits.maxPages;
      if (kind === L.update_release) this.#pageTable.fill(0, row, row + this.limits.maxPages);
      if (kind === L.update_pages) this.#pageTable.set(payload, row + start);
    });
    const rows: SimRow[] = [];
    for (let i = 0; i < plan[L.h_rows]; i++)
      rows.push(this.#admitRow(copy, step, i, voidRows?.has(i) ?? false));
    this.#steps.push({ step, plan: copy, rows });
    return step;
  }

  wait(ticket: number): Int32Array {
    if (this.#options.stepMs)
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, this.#options.stepMs);
    const sim = this.#steps.shift();
    if (!sim || sim.step !== ticket) throw new Error(`sim: wait for step ${ticket} out of order`);
    if (sim.step === this.#options.failAtStep) throw new Error("sim: kernel failed");
    this.#visitUpdates(sim.plan, (kind, slot, start, payload) => {
      if (kind === L.update_history) this.#history.set(payload, slot * this.limits.maxLen + start);
    });
    for (const row of sim.rows) this.#write(sim.step, row);
    const results = new Int32Array(sim.plan[L.h_samples] * L.result_stride);
    let sample = 0;
    for (const row of sim.rows) if (row.sample) this.#sample(sim.step, row, results, sample++);
    return results;
  }

  kvFaults(): KvFaults {
    return { saturated: 0, nan: 0 };
  }

  dispose(): void {}

  // Finds the row's pages, checks that what it will read is written or its own, and destroys what it will write.
  #admitRow(plan: Int32Array, step: number, index: number, isVoid: boolean): SimRow {
    const at = plan[L.h_rows_offset] + index * L.row_stride;
    const [slot, fresh, past] = [plan[at], plan[at + L.row_new], plan[at + L.row_past]];
    const epoch = plan[at + L.row_epoch];
    const first = slot * this.limits.maxPages;
    const count = Math.ceil((past + fresh) / PAGE_TOKENS);
    const pages = this.#pageTable.slice(first, first + count);
    const sample = plan[at + L.row_sample] === 1;
    if (isVoid) return { slot, fresh: 0, past: 0, sample, epoch, pages, poisoned: true, void: true };
    if (pages.includes(0)) throw new Error(`sim: step ${step}, slot ${slot}: a row uses the null page`);
    const row = { slot, fresh, past, sample, epoch, pages, poisoned: false, void: false };
    for (let p = 0; p < past; p++) {
      const cell = this.#cell(row, p);
      if (!this.#committed[cell] && this.#writerEpoch[cell] !== epoch) row.poisoned = true;
    }
    for (let p = past; p < past + fresh; p++) {
      const cell = this.#cell(row, p);
      this.#token[cell] = -1;
      this.#committed[cell] = 0;
      this.#writer[cell] = step;
      this.#writerEpoch[cell] = epoch;
      this.#position[cell] = p;
    }
    return row;
  }

  #write(step: number, row: SimRow): void {
    for (let p = row.past; p < row.past + row.fresh; p++) {
      const cell = this.#cell(row, p);
      if (this.#writer[cell] !== step) continue; // a later step has taken the page
      this.#token[cell] = this.#history[row.slot * this.limits.maxLen + p];
      this.#committed[cell] = 1;
    }
  }

  #sample(step: number, row: SimRow, results: Int32Array, index: number): void {
    const length = row.past + row.fresh;
    let state = row.poisoned ? 2 : 1;
    for (let p = 0; p < length; p++) {
      const cell = this.#cell(row, p);
      const valid = this.#committed[cell] === 1 && this.#position[cell] === p && this.#writer[cell] <= step;
      state = mix(state, valid ? this.#token[cell] : -2);
    }
    const token = (state >>> 0) % this.limits.vocab;
    if (length < this.limits.maxLen && !row.void)
      this.#history[row.slot * this.limits.maxLen + length] = token;
    const at = index * L.result_stride;
    results[at + L.result_slot] = row.slot;
    results[at + L.result_position] = length;
    results[at + L.result_token] = token;
    results[at + L.result_epoch] = row.epoch;
    results[at + L.result_logprob] = floatBits(-0.5);
    results[at + L.result_top_count] = 1;
    results[at + L.result_top] = token;
    results[at + L.result_top + 1] = floatBits(-0.5);
    results[at + L.result_status] = step === this.#options.nanAtStep ? L.status_nan : L.status_ok;
  }

  #cell(row: SimRow, position: number): number {
    return row.pages[Math.floor(position / PAGE_TOKENS)] * PAGE_TOKENS + (position % PAGE_TOKENS);
  }

  #visitUpdates(
    plan: Int32Array,
    visit: (kind: number, slot: number, start: number, payload: Int32Array) => void,
  ): void {
    let at: number = L.header;
    for (let i = 0; i < plan[L.h_updates]; i++) {
      const [kind, slot, start, count] = plan.subarray(at, at + L.update_header);
      const ints = kind === L.update_bias ? 2 * count : count;
      at += L.update_header;
      visit(kind, slot, start, plan.subarray(at, at + ints));
      at += ints;
    }
  }
}
