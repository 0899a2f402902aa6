// What executes steps: a model on a device (model-runner.ts) or the oracle of the tests (sim-runner.ts).
import type { PlanLimits } from "./plan.ts";

/** Elements that went into the KV cache and are not what they were. */
export interface KvFaults {
  /** Beyond the range of FP8, stored as its largest value. */
  saturated: number;
  /** Not stored: the step failed. */
  nan: number;
}

/** Steps run in the order of submission. At most `depth` are in flight: submitted and not yet waited for. */
export interface Runner {
  readonly limits: PlanLimits;
  readonly depth: number;
  /**
   * Starts a step and returns its ticket. The plan may be overwritten once `depth` further steps were submitted; the
   * changes of page tags (kv/tags.ts), which a runner without them ignores, at once.
   */
  submit(plan: Int32Array, tags?: Int32Array | null): number;
  /** Blocks until the step is done and returns its results, valid until `depth` further steps were submitted. */
  wait(ticket: number): Int32Array;
  /** Verdicts of the step last waited for (kv/tag-layout.ts), one per row of its plan; null or no such method: nothing is checked. */
  verdicts?(): Int32Array | null;
  /** Overwrites an entry of a slot's page table, as a fault would: the next step must find it. For the self-test. */
  misdirect?(slot: number, logical: number, page: number): void;
  /** Totals of all steps waited for so far, also of one that failed. */
  kvFaults(): KvFaults;
  dispose(): void;
}
