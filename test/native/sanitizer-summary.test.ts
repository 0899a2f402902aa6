import assert from "node:assert/strict";
import { test } from "node:test";
import { summaryOf } from "../gpu/sanitizer-summary.ts";

test("a clean report has no errors", () => {
  assert.deepEqual(summaryOf("========= COMPUTE-SANITIZER\nsmoke: ok\n========= ERROR SUMMARY: 0 errors\n"), {
    errors: 0,
    first: [],
  });
});

test("errors of all processes and all kinds count, and the first lines are kept", () => {
  const report = [
    "========= COMPUTE-SANITIZER",
    "========= Invalid __global__ read of size 4 bytes",
    "=========     at kernel+0x90",
    "========= ERROR SUMMARY: 1 error",
    "========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)",
    "========= ERROR SUMMARY: 3 errors",
  ].join("\n");
  const found = summaryOf(report);
  assert.equal(found?.errors, 6);
  assert.equal(found?.first[0], "========= Invalid __global__ read of size 4 bytes");
});

test("a tool that ended early has no summary, which is not the same as no errors", () => {
  assert.equal(
    summaryOf("========= COMPUTE-SANITIZER\n========= Error: Target application terminated"),
    null,
  );
});
