import assert from "node:assert/strict";
import { test } from "node:test";
import { expandedIsCheaper } from "../../../gpu-node/model/mla.ts";

const KIMI = { kvLora: 512, nopeDim: 128, ropeDim: 64, valueDim: 128 };

test("a decode step is absorbed, whatever the context", () => {
  for (const maxKvLen of [1, 100, 100_000]) {
    for (const rows of [1, 64]) assert.ok(!expandedIsCheaper(KIMI, { tokens: rows, rows, maxKvLen }));
  }
});

test("a long prompt is expanded, at once or chunk by chunk", () => {
  for (const maxKvLen of [512, 4096, 100_000]) {
    assert.ok(expandedIsCheaper(KIMI, { tokens: 512, rows: 1, maxKvLen }), `context ${maxKvLen}`);
  }
});

test("decode rows beside a chunk keep the step absorbed when they would dominate the expansion", () => {
  assert.ok(!expandedIsCheaper(KIMI, { tokens: 512 + 63, rows: 64, maxKvLen: 4096 }));
});
