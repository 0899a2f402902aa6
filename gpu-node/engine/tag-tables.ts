// Page tags on the device: the tables and the three launches around a step's forward pass (native/ops/page_tags).
import { randomBytes } from "node:crypto";
import { TAG_LAYOUT as T } from "../kv/tag-layout.ts";
import type { StepBatch } from "../model/step.ts";
import type { Tensor } from "../native/addon.ts";
import type { OpDevice } from "../native/device.ts";
import { type PlanLimits, planCapacity } from "./plan.ts";

/** Int32 words of the verdicts of a step. */
export function verdictWords(limits: PlanLimits): number {
  return limits.maxRows * T.verdict_words;
}

/** Records that one step can need: every page at most once, what a plan can bind, and every slot's beginning. */
function updateCapacity(limits: PlanLimits): number {
  // A bound page comes with 64 tokens of history and an entry of the page table, or is the one that a row grows by.
  const bound = Math.ceil(planCapacity(limits) / 65) + 3 * limits.slots;
  return (1 + limits.pages + bound) * T.update_words;
}

export class TagTables {
  readonly pages: Tensor;
  readonly expected: Tensor;
  readonly slots: Tensor;
  readonly #device: OpDevice;
  readonly #updates: Tensor;
  readonly #secret: Tensor;
  readonly #verdicts: Tensor;

  /** @param verdicts i32 [maxRows, verdict_words] */
  constructor(device: OpDevice, limits: PlanLimits, verdicts: Tensor) {
    this.#device = device;
    this.#verdicts = verdicts;
    this.#updates = device.alloc("i32", [updateCapacity(limits)]);
    this.#secret = device.fromHost("i32", [2], randomBytes(8));
    this.pages = device.alloc("i32", [limits.pages, T.page_words]);
    this.expected = device.alloc("i32", [limits.slots, limits.maxPages, T.expected_words]);
    this.slots = device.alloc("i32", [limits.slots, T.slot_words]);
  }

  /** Uploads a step's changes; without any its count of 0, as a graph applies what it finds. */
  upload(updates: Int32Array | null): void {
    this.#device.upload(this.#updates, updates ?? new Int32Array(T.update_words));
  }

  /** After plan_expand and before anything that reads a page or writes one. */
  check(plan: Tensor, batch: StepBatch): void {
    const { pages, expected, slots } = this;
    const { ops } = this.#device;
    ops.tag_update({ updates: this.#updates, secret: this.#secret, pages, expected, slots });
    ops.page_tags({
      plan,
      page_table: batch.pageTable,
      pages,
      expected,
      slots,
      row_start: batch.rowStart,
      kv_len: batch.kvLen,
      write_slots: batch.writeSlots,
      verdicts: this.#verdicts,
    });
  }

  /** After the forward pass. */
  written(batch: StepBatch): void {
    this.#device.ops.tag_written({ write_slots: batch.writeSlots, pages: this.pages });
  }
}
