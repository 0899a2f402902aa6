// vLLM #49757, #37728, #35431: rows of requests that were gone, and padding rows, still pointed at pages through stale
// page-table entries, and wrote there.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { PLAN_LAYOUT as L, PlanWriter, planCapacity } from "../../gpu-node/engine/plan.ts";
import { Slots } from "../../gpu-node/engine/slots.ts";
import { openDevice } from "../../gpu-node/native/device.ts";

const limits = { slots: 3, maxPages: 4, maxLen: 256, pages: 9, vocab: 50, maxTokens: 8, maxRows: 3 };
const device = openDevice({ backend: "cpu", threads: 1 });
after(() => device.dispose());

test("a slot's page table is cleared on the device with the first plan after its release", () => {
  const pageTable = device.alloc("i32", [limits.slots, limits.maxPages]);
  const plan = device.alloc("i32", [planCapacity(limits)]);
  const state = {
    plan,
    page_table: pageTable,
    history: device.alloc("i32", [limits.slots, limits.maxLen]),
    params: device.alloc("i32", [limits.slots, L.param_count]),
    bias_ids: device.alloc("i32", [limits.slots, L.max_bias]),
    bias_values: device.alloc("f32", [limits.slots, L.max_bias]),
    token_ids: device.alloc("i32", [4]),
    positions: device.alloc("i32", [4]),
    write_slots: device.alloc("i32", [4]),
    row_slot: device.alloc("i32", [4]),
    row_start: device.alloc("i32", [5]),
    kv_len: device.alloc("i32", [4]),
    logit_rows: device.alloc("i32", [4]),
    sample_rows: device.alloc("i32", [4, L.sample_stride]),
  };
  const ints = (tensor: typeof plan) => [...new Int32Array(device.read(tensor))];
  const slots = new Slots(limits.slots);
  const writer = new PlanWriter(limits);
  const slot = slots.take();
  writer.begin(1);
  writer.pages(slot, Int32Array.of(3, 4, 5), 0, 3);
  writer.row(slot, 1, 130, true, slots.nextEpoch(), 1);
  device.upload(plan, writer.finish());
  device.ops.plan_expand(state);
  assert.deepEqual(ints(pageTable.slice(0, slot, slot + 1)), [3, 4, 5, 0]);
  // The three rows and tokens that pad the step are written nowhere and have no context.
  assert.deepEqual(ints(state.write_slots), [5 * 64 + 2, -1, -1, -1]);
  assert.deepEqual(ints(state.kv_len), [131, 0, 0, 0]);

  slots.give(slot);
  const other = slots.take();
  assert.equal(other, slot, "the slot is taken again at once");
  writer.begin(2);
  slots.writeReleases(writer);
  writer.pages(other, Int32Array.of(7), 0, 1);
  writer.row(other, 1, 0, true, slots.nextEpoch(), 1);
  device.upload(plan, writer.finish());
  device.ops.plan_expand(state);
  assert.deepEqual(ints(pageTable.slice(0, slot, slot + 1)), [7, 0, 0, 0]);
});
