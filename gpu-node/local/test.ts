// `edgewise test`, `npm test`: every test that needs no GPU, then the totals on one line.

import { globSync } from "node:fs";
import { join, relative } from "node:path";
import { run } from "node:test";
import { spec } from "node:test/reporters";
import { UsageError } from "../options.ts";
import { ROOT } from "./stack.ts";

/** Files at a time. */
const CONCURRENCY = 2;
/** A test that takes longer hangs; so does everything when nothing is heard for so long. */
const TIMEOUT_MS = 300_000;
const POLL_MS = 1_000;

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
  const began = Date.now();
  const { passed, failed, skipped } = await runFiles(files, (text) => process.stdout.write(text));
  const seconds = ((Date.now() - began) / 1000).toFixed(0);
  console.log(`\n${files.length} files, ${skipped} skipped, ${seconds} s`);
  console.log(`${passed} passed, ${failed} failed`);
  return failed === 0 ? 0 : 1;
}

/** Runs test files, each in a process of its own, and hands out the report. A file that does not tell its end fails. */
export async function runFiles(
  files: string[],
  print: (text: string) => void,
): Promise<{ passed: number; failed: number; skipped: number }> {
  const totals = { passed: 0, failed: 0, skipped: 0 };
  const hang = new AbortController();
  // Without `forceExit`: a file's process then ends before all that it has to tell is read, and what is lost counts as
  // nothing at all.
  const events = run({
    files,
    cwd: ROOT,
    concurrency: CONCURRENCY,
    timeout: TIMEOUT_MS,
    signal: hang.signal,
  });
  const unfinished = new Set(files);
  events.on("test:summary", ({ file, counts }) => {
    if (file !== undefined) {
      unfinished.delete(file);
      return;
    }
    totals.passed = counts.passed;
    totals.failed = counts.tests - counts.passed - counts.skipped - counts.todo;
    totals.skipped = counts.skipped + counts.todo;
  });
  let heard = Date.now();
  const watch = setInterval(() => {
    if (Date.now() - heard > TIMEOUT_MS + POLL_MS) hang.abort();
  }, POLL_MS);
  for await (const text of events.compose(new spec())) {
    heard = Date.now();
    print(text);
  }
  clearInterval(watch);
  for (const file of unfinished)
    print(`✖ ${relative(ROOT, file)} ended before it had told of all its tests\n`);
  totals.failed += unfinished.size;
  return totals;
}

function testFiles(parts: string[]): string[] {
  const all = globSync("test/**/*.test.ts", { cwd: ROOT }).filter((file) => !file.startsWith("test/gpu/"));
  const wanted = all.filter((file) => parts.length === 0 || parts.some((part) => file.includes(part)));
  return wanted.sort().map((file) => join(ROOT, file));
}
