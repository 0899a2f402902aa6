import assert from "node:assert/strict";
import { test } from "node:test";
import { TAG_CAUSES, TAG_LAYOUT } from "../../../gpu-node/kv/tag-layout.ts";
import { loadAddon } from "../../../gpu-node/native/load.ts";

test("the words of tag records are the same in C++ and in TypeScript", () => {
  assert.deepEqual(loadAddon().tagLayout(), { ...TAG_LAYOUT });
});

test("every cause that the device reports has its name", () => {
  const causes = Object.entries(TAG_LAYOUT).filter(([name]) => name.startsWith("cause_"));
  for (const [name, number] of causes)
    assert.equal(`cause_${(TAG_CAUSES as readonly string[])[number]}`, name);
  assert.equal(causes.length, TAG_CAUSES.length - 1);
});
