// Faults put in on purpose, to see the alarm work on a node of its own: never part of a node that answers anyone.
import { TAG_LAYOUT as T } from "../kv/tag-layout.ts";
import { PLAN_LAYOUT as L, type PlanLimits } from "./plan.ts";
import type { KvFaults, Runner } from "./runner.ts";

export const FAULTS = {
  entry: "an entry of a running sequence's page table is changed",
  tags: "the changes of page tags of a step are lost",
  check: "the verdicts of a step are those of the step before",
} as const;

export type FaultName = keyof typeof FAULTS;

export interface FaultSpec {
  name: FaultName;
  /** Share of steps. */
  rate: number;
}

/** Setting this to 1 in the environment allows `fault`. */
export const ALLOW_FAULTS = "EDGEWISE_ALLOW_FAULTS";

/**
 * Reads `NAME:RATE`.
 * @throws RangeError unknown name or rate, or faults are not allowed
 */
export function parseFault(text: string, environment: Record<string, string | undefined>): FaultSpec {
  const [name, rate] = [text.split(":")[0], Number(text.split(":")[1])];
  if (!Object.hasOwn(FAULTS, name) || !(rate > 0 && rate <= 1)) {
    throw new RangeError(`a fault is NAME:RATE, NAME one of ${Object.keys(FAULTS).join(", ")}, RATE up to 1`);
  }
  if (environment[ALLOW_FAULTS] !== "1") {
    throw new RangeError(
      `faults are refused unless ${ALLOW_FAULTS}=1 is set; never set it where users are served`,
    );
  }
  return { name: name as FaultName, rate };
}

/** A runner to which a fault happens in a share of its steps. */
export class FaultyRunner implements Runner {
  readonly limits: PlanLimits;
  readonly depth: number;
  injected = 0;
  readonly #runner: Runner;
  readonly #fault: FaultSpec;
  readonly #random: () => number;
  /** Of steps in flight: their verdicts go astray. */
  readonly #astray: boolean[] = [];
  #verdicts: Int32Array | null = null;

  constructor(runner: Runner, fault: FaultSpec, random: () => number = Math.random) {
    this.#runner = runner;
    this.#fault = fault;
    this.#random = random;
    this.limits = runner.limits;
    this.depth = runner.depth;
  }

  submit(plan: Int32Array, tags: Int32Array | null = null): number {
    const { name } = this.#fault;
    const changes = tags !== null && tags[0] > 0;
    const due = (name !== "tags" || changes) && this.#random() < this.#fault.rate;
    if (due) this.injected++;
    if (due && name === "entry") this.#changeEntry(plan);
    this.#astray.push(due && name === "check");
    return this.#runner.submit(plan, due && name === "tags" ? new Int32Array(T.update_words) : tags);
  }

  wait(ticket: number): Int32Array {
    const results = this.#runner.wait(ticket);
    if (!this.#astray.shift()) this.#verdicts = this.#runner.verdicts?.()?.slice() ?? null;
    return results;
  }

  verdicts(): Int32Array | null {
    return this.#verdicts;
  }

  misdirect(slot: number, logical: number, page: number): void {
    this.#runner.misdirect?.(slot, logical, page);
  }

  kvFaults(): KvFaults {
    return this.#runner.kvFaults();
  }

  dispose(): void {
    this.#runner.dispose();
  }

  // The first page of a random row that has past tokens, if there is one.
  #changeEntry(plan: Int32Array): void {
    const row = Math.floor(this.#random() * plan[L.h_rows]);
    const at = plan[L.h_rows_offset] + row * L.row_stride;
    const page = 1 + Math.floor(this.#random() * (this.limits.pages - 1));
    if (plan[at + L.row_slot] >= 0) this.misdirect(plan[at + L.row_slot], 0, page);
  }
}
