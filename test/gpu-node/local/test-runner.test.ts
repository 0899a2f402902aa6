// `npm test` does not take for passed what it has not heard of.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { ROOT } from "../../../gpu-node/local/stack.ts";

const folder = mkdtempSync(join(tmpdir(), "edgewise-runner-"));
after(() => rmSync(folder, { recursive: true }));

/** Runs one file of tests as `npm test` does. */
function totalsOf(name: string, body: string): unknown {
  const file = join(folder, `${name}.test.mjs`);
  writeFileSync(file, `import { test } from "node:test";\n${body}`);
  const script = join(folder, `${name}.mjs`);
  writeFileSync(
    script,
    `import { runFiles } from ${JSON.stringify(join(ROOT, "gpu-node/local/test.ts"))};
    console.log(JSON.stringify(await runFiles([${JSON.stringify(file)}], () => {})));`,
  );
  // Inside a test node:test would skip the files.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  return JSON.parse(execFileSync(process.execPath, [script], { env, encoding: "utf8" }));
}

test("a file whose process ends well, but in the middle, has failed", () => {
  const body = `
    test("first", () => {});
    test("leaves", async () => { await new Promise((resolve) => setTimeout(resolve, 50)); process.exit(0); });
    test("is not reached", () => {});`;
  assert.deepEqual(totalsOf("leaves", body), { passed: 1, failed: 1, skipped: 0 });
});
