// A slot that was given back is cleared on the device by exactly one plan.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { PlanWriter } from "../../../gpu-node/engine/plan.ts";
import { Slots } from "../../../gpu-node/engine/slots.ts";

test("a slot given back after a plan's releases were written is released by the next plan", () => {
  const released: number[] = [];
  const writer = { release: (slot: number) => released.push(slot) } as unknown as PlanWriter;
  const slots = new Slots(3);
  const [first, second] = [slots.take(), slots.take()];
  slots.give(first);
  slots.writeReleases(writer);
  slots.give(second);
  slots.releasesSubmitted();
  assert.deepEqual(released, [first]);
  slots.writeReleases(writer);
  slots.releasesSubmitted();
  assert.deepEqual(released, [first, second]);
  slots.writeReleases(writer);
  assert.deepEqual(released, [first, second]);
});

test("releases of a plan that was not submitted are written again", () => {
  const released: number[] = [];
  const writer = { release: (slot: number) => released.push(slot) } as unknown as PlanWriter;
  const slots = new Slots(1);
  slots.give(slots.take());
  slots.writeReleases(writer);
  slots.writeReleases(writer);
  assert.deepEqual(released, [0, 0]);
});
