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
  /** Starts a step and returns its ticket. The plan may be overwritten once `depth` further steps were submitted. */
  submit(plan: Int32Array): number;
  /** Blocks until the step is done and returns its results, valid until `depth` further steps were submitted. */
  wait(ticket: number): Int32Array;
  /** Totals of all steps waited for so far, also of one that failed. */
  kvFaults(): KvFaults;
  dispose(): void;
}
