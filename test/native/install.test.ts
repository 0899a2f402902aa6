// What a newcomer without the tools sees.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const script = fileURLToPath(new URL("../../native/install.mjs", import.meta.url));

/** Runs the installer with only `programs` on the PATH. */
function installWith(programs: string[], env: Record<string, string> = {}) {
  const bin = mkdtempSync(join(tmpdir(), "edgewise-path-"));
  try {
    for (const name of programs) symlinkSync("/bin/true", join(bin, name));
    const options = { encoding: "utf8", env: { PATH: bin, ...env } } as const;
    const { status, stdout, stderr } = spawnSync(process.execPath, [script], options);
    return { status, output: stdout + stderr };
  } finally {
    rmSync(bin, { recursive: true });
  }
}

test("a missing tool ends the installation with one line that names its package", () => {
  const cases: [string[], string][] = [
    [[], "edgewise: a C++ compiler is missing. On Debian and Ubuntu: apt-get install g++\n"],
    [["g++"], "edgewise: cmake is missing. On Debian and Ubuntu: apt-get install cmake\n"],
    [["g++", "cmake"], "edgewise: make is missing. On Debian and Ubuntu: apt-get install make\n"],
  ];
  for (const [programs, output] of cases) assert.deepEqual(installWith(programs), { status: 1, output });
});

test("EDGEWISE_CUDA=1 without nvcc says so instead of building without it", () => {
  const result = installWith(["g++", "cmake", "make"], { EDGEWISE_CUDA: "1" });
  assert.equal(result.status, 1);
  assert.match(result.output, /^edgewise: EDGEWISE_CUDA=1, but nvcc is missing\. .*\n$/);
});
