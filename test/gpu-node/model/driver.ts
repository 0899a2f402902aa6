// Runs a model without the engine: builds the tensors of a step by hand, over scattered pages.
import type { Model } from "../../../gpu-node/model/load-model.ts";
import type { OpDevice } from "../../../gpu-node/native/device.ts";

/** New tokens of one sequence in a step. */
export interface Row {
  slot: number;
  tokens: readonly number[];
  past: number;
}

const PAGE = 64;
const MAX_PAGES = 16;

/** Sequences of up to 1,024 tokens; logical page p of slot s lies on a physical page of no obvious order. */
export class Driver {
  readonly #device: OpDevice;
  readonly #model: Model;
  readonly #slots: number;

  constructor(device: OpDevice, model: Model, slots = 4) {
    this.#device = device;
    this.#model = model;
    this.#slots = slots;
    model.allocKv(1 + slots * MAX_PAGES);
  }

  /** Logits of every new token, [T * vocab]. */
  step(rows: readonly Row[]): Float32Array {
    const tokens = rows.flatMap((row) => [...row.tokens]);
    const places = rows.flatMap((row) =>
      row.tokens.map((_, i) => ({ slot: row.slot, position: row.past + i })),
    );
    const starts = [0];
    for (const row of rows) starts.push((starts.at(-1) as number) + row.tokens.length);
    const table = Array.from({ length: this.#slots * MAX_PAGES }, (_, i) =>
      this.#page(Math.floor(i / MAX_PAGES), i % MAX_PAGES),
    );
    const kvLen = rows.map((row) => row.past + row.tokens.length);

    const i32 = (values: number[], shape = [values.length]) =>
      this.#device.fromHost("i32", shape, Int32Array.from(values));
    const size = { tokens: tokens.length, rows: rows.length, samples: tokens.length };
    const arena = this.#device.arena(this.#model.arenaBytes(size));
    this.#device.useArena(arena);
    const logits = this.#model.forward({
      ...size,
      tokenIds: i32(tokens),
      positions: i32(places.map(({ position }) => position)),
      writeSlots: i32(
        places.map(
          ({ slot, position }) => this.#page(slot, Math.floor(position / PAGE)) * PAGE + (position % PAGE),
        ),
      ),
      rowStart: i32(starts),
      kvLen: i32(kvLen),
      rowSlot: i32(rows.map(({ slot }) => slot)),
      pageTable: i32(table, [this.#slots, MAX_PAGES]),
      logitRows: i32(tokens.map((_, i) => i)),
      maxKvLen: Math.max(...kvLen),
      maxNewTokens: Math.max(...rows.map((row) => row.tokens.length)),
    });
    return new Float32Array(this.#device.read(logits));
  }

  /** Logits of all tokens of one sequence, computed `chunk` at a time. */
  sequence(slot: number, tokens: readonly number[], chunk: number): Float32Array {
    const vocab = this.#model.spec.vocab;
    const out = new Float32Array(tokens.length * vocab);
    for (let past = 0; past < tokens.length; past += chunk) {
      out.set(this.step([{ slot, tokens: tokens.slice(past, past + chunk), past }]), past * vocab);
    }
    return out;
  }

  #page(slot: number, logical: number): number {
    const count = this.#slots * MAX_PAGES; // 7 is prime to it
    return 1 + (((slot * MAX_PAGES + logical) * 7 + 3) % count);
  }
}
