// Incident records: what they say, and that they can be read again.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { incidentOf, staleEntryOf, suspectsOf } from "../../../gpu-node/kv/incidents.ts";
import { explain, main, readIncidents } from "../../../gpu-node/kv/list-incidents.ts";
import { PageHistory } from "../../../gpu-node/kv/page-history.ts";
import { TAG_LAYOUT as T, TAG_CAUSES } from "../../../gpu-node/kv/tag-layout.ts";

const history = new PageHistory();
history.add("issue", 7, 5, 10);
history.add("issue", 8, 1, 11);
history.add("retire", 7, 6, 12);

const context = {
  phase: "decode",
  outcome: "failed",
  request: 3,
  label: "chat",
  account: { low: -1, high: 0x12 },
  step: 13,
  slot: 2,
} as const;

function verdict(): Int32Array {
  const words = new Int32Array(T.verdict_words);
  words.set([4, 7, 7, 5, -2, -1, 1, 0, 0], T.v_logical);
  return words;
}

test("an incident names both sides, and the transitions of their pages", () => {
  const incident = incidentOf({ ...context, cause: "generation" }, verdict(), history);
  assert.deepEqual(incident.expected, { page: 7, generation: 5, tag: "00000001ffffffff" });
  assert.deepEqual(incident.found, { page: 7, generation: 4294967294, tag: "0000000000000000" });
  assert.equal(incident.account, "00000012ffffffff");
  assert.deepEqual(Object.keys(incident.transitions), ["7"]);
  assert.deepEqual(
    incident.transitions[7].map(({ kind }) => kind),
    ["issue", "retire"],
  );
  assert.deepEqual(suspectsOf(incident), [7]);
});

test("an incident without a verdict names no page", () => {
  for (const words of [null, verdict()]) {
    const incident = incidentOf({ ...context, cause: "unchecked" }, words, history);
    assert.deepEqual([incident.expected, incident.found, incident.logical], [null, null, -1]);
    assert.deepEqual(suspectsOf(incident), []);
  }
});

test("every cause is explained, and an incident survives its line of JSON", () => {
  for (const cause of TAG_CAUSES) {
    const incident = incidentOf({ ...context, cause }, verdict(), history);
    const [read] = readIncidents(`${JSON.stringify(incident)}\n`, "x");
    assert.deepEqual(read, incident);
    assert.match(explain(read), new RegExp(`${cause}.*\\n.*\\w`));
  }
  const stale = staleEntryOf({ ...context, cause: "stale-entry" }, 1, 7, 5, history);
  assert.match(
    explain(stale),
    /expected {2}page 7, generation 5\n {2}page 7: issue 5 at step 10, retire 6 at step 12/,
  );
});

test("a line that is no incident is named, a line that is not finished is left out", () => {
  assert.throws(() => readIncidents('{"cause":"none"}\n', "file"), /file:1 is no incident/);
  assert.throws(() => readIncidents("nonsense\n", "file"), /file:1 is no incident/);
  assert.deepEqual(readIncidents('{"cau', "file"), []);
});

test("edgewise incidents tells each one, then how many there are", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "edgewise-incidents-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const file = join(folder, "incidents.jsonl");
  const incident = incidentOf({ ...context, cause: "mapping" }, verdict(), history);
  const print = t.mock.method(console, "log", () => {});
  for (const [count, told] of [
    [0, "0 incidents"],
    [1, "1 incident"],
    [2, "2 incidents"],
  ] as const) {
    writeFileSync(file, `${JSON.stringify(incident)}\n`.repeat(count));
    print.mock.resetCalls();
    assert.equal(await main([file]), count === 0 ? 0 : 1);
    const lines = print.mock.calls.map(({ arguments: [line] }) => line);
    assert.deepEqual(lines, [...Array(count).fill(`${explain(incident)}\n`), told]);
  }
});

test("the ring of transitions forgets the oldest ones", () => {
  const ring = new PageHistory();
  for (let i = 0; i < 10_000; i++) ring.add("issue", i % 2, i, i);
  const known = ring.of(1, 10_000);
  assert.equal(known.length, 2048);
  assert.equal(known.at(-1)?.generation, 9999);
  assert.equal(ring.of(1, 3).length, 3);
});
