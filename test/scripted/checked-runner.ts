// The oracle runner with page tags: the plan and the changes of tags go through the real operators on a device, and the
// oracle runs the rows that pass. What goes wrong on the way to the device is put in by `tamper`.
import { PLAN_LAYOUT as L, type PlanLimits, planCapacity } from "../../gpu-node/engine/plan.ts";
import type { KvFaults, Runner } from "../../gpu-node/engine/runner.ts";
import { type SimOptions, SimRunner } from "../../gpu-node/engine/sim-runner.ts";
import { TagTables } from "../../gpu-node/engine/tag-tables.ts";
import { TAG_LAYOUT as T } from "../../gpu-node/kv/tag-layout.ts";
import type { StepBatch } from "../../gpu-node/model/step.ts";
import type { Tensor } from "../../gpu-node/native/addon.ts";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";

export interface Tamper {
  /** Instead of the changes of tags that go with the step. */
  updates?(updates: Int32Array, step: number): Int32Array;
  /** After the plan was applied, before the check; true: the check is not launched. */
  beforeCheck?(runner: CheckedSimRunner, step: number): boolean;
  /** What the check has found of the rows of a plan. */
  afterCheck?(verdicts: Int32Array, plan: Int32Array, step: number): void;
}

let device: OpDevice | undefined;

/** One device for all runners of a test file; disposed by closeDevice(). */
function sharedDevice(): OpDevice {
  device ??= openDevice({ backend: "reference", threads: 1 });
  return device;
}

export function closeDevice(): void {
  device?.dispose();
  device = undefined;
}

export class CheckedSimRunner implements Runner {
  readonly limits: PlanLimits;
  readonly depth: number;
  readonly device: OpDevice;
  readonly tables: TagTables;
  readonly pageTable: Tensor;
  tamper: Tamper = {};
  readonly #sim: SimRunner;
  readonly #plan: Tensor;
  readonly #state: { history: Tensor; params: Tensor; bias_ids: Tensor; bias_values: Tensor };
  readonly #verdicts: Tensor;
  readonly #queue: Int32Array[] = [];
  #last: Int32Array | null = null;

  constructor(limits: PlanLimits, options: SimOptions = {}) {
    this.limits = limits;
    this.#sim = new SimRunner(limits, options);
    this.depth = this.#sim.depth;
    const { slots, maxRows } = limits;
    this.device = sharedDevice();
    this.#plan = this.device.alloc("i32", [planCapacity(limits)]);
    this.pageTable = this.device.alloc("i32", [slots, limits.maxPages]);
    this.#state = {
      history: this.device.alloc("i32", [slots, limits.maxLen]),
      params: this.device.alloc("i32", [slots, L.param_count]),
      bias_ids: this.device.alloc("i32", [slots, L.max_bias]),
      bias_values: this.device.alloc("f32", [slots, L.max_bias]),
    };
    this.#verdicts = this.device.alloc("i32", [maxRows, T.verdict_words]);
    this.tables = new TagTables(this.device, limits, this.#verdicts);
  }

  submit(plan: Int32Array, tags: Int32Array | null = null): number {
    const step = plan[L.h_step_high] * 2 ** 32 + (plan[L.h_step_low] >>> 0);
    this.device.upload(this.#plan, plan);
    this.tables.upload(tags && (this.tamper.updates?.(tags, step) ?? tags));
    const batch = this.#expand(plan[L.h_tokens], plan[L.h_rows], Math.max(1, plan[L.h_samples]));
    if (!this.tamper.beforeCheck?.(this, step)) this.tables.check(this.#plan, batch);
    this.tables.written(batch);
    const verdicts = new Int32Array(this.device.read(this.#verdicts));
    this.#queue.push(verdicts);
    this.tamper.afterCheck?.(verdicts, plan, step);
    const failed = new Set<number>();
    for (let row = 0; row < plan[L.h_rows]; row++) {
      if (verdicts[row * T.verdict_words + T.v_status] === T.status_failed) failed.add(row);
    }
    return this.#sim.submit(plan, null, failed);
  }

  wait(ticket: number): Int32Array {
    this.#last = this.#queue.shift() ?? null;
    return this.#sim.wait(ticket);
  }

  verdicts(): Int32Array | null {
    return this.#last;
  }

  misdirect(slot: number, logical: number, page: number): void {
    const entry = this.pageTable.slice(0, slot, slot + 1).slice(1, logical, logical + 1);
    this.device.upload(entry, Int32Array.of(page));
  }

  kvFaults(): KvFaults {
    return this.#sim.kvFaults();
  }

  dispose(): void {}

  #expand(tokens: number, rows: number, samples: number): StepBatch {
    const i32 = (...shape: number[]) => this.device.alloc("i32", shape);
    const batch: StepBatch = {
      tokens,
      rows,
      samples,
      tokenIds: i32(tokens),
      positions: i32(tokens),
      writeSlots: i32(tokens),
      rowStart: i32(rows + 1),
      kvLen: i32(rows),
      rowSlot: i32(rows),
      pageTable: this.pageTable,
      logitRows: i32(samples),
      maxKvLen: this.limits.maxLen,
      maxNewTokens: tokens,
    };
    this.device.ops.plan_expand({
      plan: this.#plan,
      page_table: this.pageTable,
      ...this.#state,
      token_ids: batch.tokenIds,
      positions: batch.positions,
      write_slots: batch.writeSlots,
      row_slot: batch.rowSlot,
      row_start: batch.rowStart,
      kv_len: batch.kvLen,
      logit_rows: batch.logitRows,
      sample_rows: i32(samples, L.sample_stride),
    });
    return batch;
  }
}
