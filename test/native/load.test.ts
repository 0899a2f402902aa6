// Loading the addon, and explaining why it did not load.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { examine } from "../../gpu-node/native/doctor.ts";

const cli = fileURLToPath(new URL("../../gpu-node/cli.ts", import.meta.url));

function runDoctor(args: string[], env: Record<string, string> = {}) {
  const options = { encoding: "utf8", env: { ...process.env, ...env } } as const;
  return spawnSync(process.execPath, [cli, "doctor", ...args], options);
}

test("doctor reports every backend, with a reason for each that is not used", () => {
  const report = examine();
  assert.deepEqual(
    report.backends.map(({ name }) => name),
    ["reference", "cpu", "cuda"],
  );
  const { status, stdout } = runDoctor([]);
  assert.equal(status, 0);
  assert.match(
    stdout,
    /^Node +v\d+.*\naddon +\d.*edgewise\.node\nreference +ready\ncpu +ready \(\w+, \d+ threads\)\n/,
  );
  for (const { name, unavailable } of report.backends)
    if (unavailable) assert.ok(stdout.includes(`not used: ${unavailable}`), name);
  assert.deepEqual(JSON.parse(runDoctor(["--json"]).stdout).backends, report.backends);
});

test("an addon that is not there or not an addon is named with its reason and the way to build it", () => {
  const dir = mkdtempSync(join(tmpdir(), "edgewise-load-"));
  try {
    const broken = join(dir, "edgewise.node");
    writeFileSync(broken, "not a library");
    const first = runDoctor([], { EDGEWISE_ADDON: broken });
    assert.equal(first.status, 1);
    assert.match(first.stdout, /edgewise\.node: .*(invalid ELF header|file too short)[\s\S]*npm run build/);
    const second = runDoctor([], { EDGEWISE_ADDON: join(dir, "missing.node") });
    assert.match(second.stdout, /missing\.node: not there[\s\S]*npm run build/);
  } finally {
    rmSync(dir, { recursive: true });
  }
});

test("an unknown option of doctor is refused with the right one", () => {
  const { status, stderr } = runDoctor(["--jsn"]);
  assert.equal(status, 2);
  assert.match(stderr, /unknown flag --jsn; did you mean --json\?/);
});

test("the addon's own folder is looked at, wherever the process was started", () => {
  const options = { encoding: "utf8", cwd: tmpdir() } as const;
  const { status } = spawnSync(process.execPath, [cli, "doctor"], options);
  assert.equal(status, 0);
});
