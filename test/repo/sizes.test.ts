// The tree stays readable: small files, one concept each.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";

const SOURCE = /^(worker|gpu-node|native|test|bin)\/.*\.(ts|mjs|cc|h|cu|cuh|py)$/;
const KERNEL = /^native\/.*\.(cc|cu|cuh|h)$/;

function sourceFiles(): { path: string; lines: number }[] {
  const listed = execFileSync("git", ["ls-files"], { encoding: "utf8" }).split("\n");
  return listed
    .filter((path) => SOURCE.test(path) && existsSync(path))
    .map((path) => ({ path, lines: readFileSync(path, "utf8").split("\n").length - 1 }));
}

test("no source file is longer than 450 lines, no kernel longer than 600", () => {
  const long = sourceFiles().filter(({ path, lines }) => lines > (KERNEL.test(path) ? 600 : 450));
  assert.deepEqual(long, []);
});

test("half of the source files have at most 120 lines, nine of ten at most 300", () => {
  const lines = sourceFiles()
    .map((file) => file.lines)
    .sort((a, b) => a - b);
  const at = (share: number) => lines[Math.min(lines.length - 1, Math.floor(lines.length * share))];
  assert.ok(at(0.5) <= 120, `median is ${at(0.5)}`);
  assert.ok(at(0.9) <= 300, `90th percentile is ${at(0.9)}`);
});

test("every npm script that the README names exists", () => {
  const scripts = JSON.parse(readFileSync("package.json", "utf8")).scripts as Record<string, string>;
  const named = readFileSync("README.md", "utf8").matchAll(/npm run ([a-z0-9:_-]+)/g);
  const missing = [...named].map((match) => match[1]).filter((name) => !(name in scripts));
  assert.deepEqual(missing, []);
});

test("every file that the README links to exists", () => {
  const links = readFileSync("README.md", "utf8").matchAll(/\]\(([^)#:]+)\)/g);
  const broken = [...links].map((match) => match[1]).filter((path) => !existsSync(path));
  assert.deepEqual(broken, []);
});
