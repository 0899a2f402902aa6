// Runs every case table of this folder.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { after, test } from "node:test";
import { loadAddon } from "../../gpu-node/native/load.ts";
import { OP_TABLE, type OpName } from "../../gpu-node/native/ops.ts";
import { closeDevices, type OpCases, testOp } from "./harness.ts";

const tables: OpCases[] = [];
for (const file of readdirSync(import.meta.dirname).sort()) {
  if (file.endsWith(".cases.ts")) tables.push((await import(`./${file}`)).default as OpCases);
}

after(closeDevices);

test("what the addon registers is listed in the operator table, argument by argument", () => {
  for (const op of loadAddon().ops()) {
    const registered = op.args.map((arg) => [arg.name, arg.kind]);
    assert.deepEqual(registered, Object.entries(OP_TABLE[op.name as OpName] ?? {}), op.name);
  }
});

for (const table of tables) testOp(table);
