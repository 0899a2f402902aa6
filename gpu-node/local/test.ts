// `edgewise test`, `npm test`: every test that needs no GPU, then the totals on one line.

import { globSync } from "node:fs";
import { join } from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { UsageError } from "../options.ts";
import { ROOT } from "./stack.ts";

/** Files at a time. */
const CONCURRENCY = 2;
/** A file that takes longer hangs. */
const FILE_TIMEOUT_MS = 300_000;

const HELP = `edgewise test [PART ...]: runs the tests that need no GPU

  PART    only files whose path holds one of these words, e.g. worker or e2e`;

/** @returns 0 when every test passed */
export async function main(argv: string[]): Promise<number> {
  if (argv.includes("--help")) {
    console.log(HELP);
    return 0;
  }
  const files = testFiles(argv);
  if (files.length === 0) throw new UsageError(`no test file matches ${argv.join(" ")}`);
  const totals = { passed: 0, failed: 0, skipped: 0 };
  const began = Date.now();
  const events = run({
    files,
    cwd: ROOT,
    concurrency: CONCURRENCY,
    timeout: FILE_TIMEOUT_MS,
    forceExit: true,
  });
  events.on("test:summary", ({ file, counts }) => {
    if (file !== undefined) return;
    totals.passed = counts.passed;
    totals.failed = counts.tests - counts.passed - counts.skipped - counts.todo;
    totals.skipped = counts.skipped + counts.todo;
  });
  const report = events.compose(new spec());
  for await (const text of report) process.stdout.write(text);
  const seconds = ((Date.now() - began) / 1000).toFixed(0);
  console.log(`\n${files.length} files, ${totals.skipped} skipped, ${seconds} s`);
  console.log(`${totals.passed} passed, ${totals.failed} failed`);
  return totals.failed === 0 ? 0 : 1;
}

function testFiles(parts: string[]): string[] {
  const all = globSync("test/**/*.test.ts", { cwd: ROOT }).filter((file) => !file.startsWith("test/gpu/"));
  const wanted = all.filter((file) => parts.length === 0 || parts.some((part) => file.includes(part)));
  return wanted.sort().map((file) => join(ROOT, file));
}
