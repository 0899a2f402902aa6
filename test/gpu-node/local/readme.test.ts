// What a newcomer is told is what the package and its scripts say.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { ROOT } from "../../../gpu-node/local/stack.ts";

test("the Node.js of the README is enough for npm, which otherwise warns at every npx edgewise", () => {
  const told = /Node\.js (\d+) or newer/.exec(readFileSync(join(ROOT, "README.md"), "utf8"))?.[1];
  const lock = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8"));
  for (const { engines } of [
    JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")),
    lock.packages[""],
  ]) {
    assert.equal(engines.node, `>=${told}`);
  }
});

test("without a GPU the smoke test says so and that it checked nothing", {
  skip: existsSync("/proc/driver/nvidia/version"),
}, () => {
  const { EDGEWISE_ADDON: _, ...env } = process.env;
  const smoke = spawnSync(process.execPath, [join(ROOT, "test/gpu/smoke.ts")], { env, encoding: "utf8" });
  assert.equal(smoke.status, 3, smoke.stderr);
  assert.match(smoke.stderr, /^smoke: nothing was checked: there is no GPU here/m);
  assert.equal(smoke.stdout, "");
  if (/no CUDA kernels/.test(smoke.stderr)) assert.match(smoke.stderr, /EDGEWISE_CUDA=1 npm run build/);
});
