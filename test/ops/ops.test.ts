// Runs every case table of this folder.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { loadAddon } from "../../gpu-node/native/load.ts";
import { OP_TABLE, type OpName } from "../../gpu-node/native/ops.ts";
import { closeDevices, type OpCases, testOp } from "./harness.ts";

const tables: OpCases[] = [];
for (const file of readdirSync(import.meta.dirname).sort()) {
  if (file.endsWith(".cases.ts")) tables.push((await import(`./${file}`)).default as OpCases);
}

after(closeDevices);

test("the operator table lists exactly what the addon registers, argument by argument", () => {
  const ops = loadAddon().ops();
  const registered = ops.map((op) => [op.name, op.args.map((arg) => [arg.name, arg.kind])]);
  const listed = Object.keys(OP_TABLE)
    .sort()
    .map((name) => [name, Object.entries(OP_TABLE[name as OpName])]);
  assert.deepEqual(registered, listed);
});

test("every op has a reference kernel, to which the others are held", () => {
  const without = loadAddon()
    .ops()
    .filter((op) => !op.backends.includes("reference"));
  assert.deepEqual(without, []);
});

test("every op has a case table, or is called by another test of this folder", () => {
  const own = readdirSync(import.meta.dirname)
    .filter((file) => file.endsWith(".ts") && !file.endsWith(".cases.ts"))
    .map((file) => readFileSync(join(import.meta.dirname, file), "utf8"));
  const untested = Object.keys(OP_TABLE).filter(
    (op) => !tables.some((table) => table.op === op) && !own.some((text) => text.includes(`ops.${op}(`)),
  );
  assert.deepEqual(untested, []);
});

for (const table of tables) testOp(table);
