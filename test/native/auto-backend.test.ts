import assert from "node:assert/strict";
import { test } from "node:test";
import { autoBackend } from "../../gpu-node/native/auto-backend.ts";

const CPU = { name: "cpu", unavailable: null, emulated: false } as const;
const GPU = { name: "cuda", unavailable: null, emulated: false } as const;

test("auto is cuda where a GPU can be opened, and the CPU otherwise", () => {
  assert.equal(autoBackend([CPU, GPU]), "cuda");
  assert.equal(autoBackend([CPU, { ...GPU, unavailable: "no driver" }]), "cpu");
  assert.equal(autoBackend([CPU]), "cpu");
});

test("an emulated GPU is never chosen by itself", () => {
  assert.equal(autoBackend([CPU, { ...GPU, emulated: true }]), "cpu");
});
