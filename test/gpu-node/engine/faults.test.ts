// Faults on purpose: refused unless allowed, and every one that has an effect is noticed by an engine with page tags.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { startEngine } from "../../../gpu-node/engine/client.ts";
import { FAULTS, type FaultName, parseFault } from "../../../gpu-node/engine/faults.ts";
import { GREEDY } from "../../../gpu-node/engine/sampling.ts";
import { readIncidents } from "../../../gpu-node/kv/list-incidents.ts";

const dir = fileURLToPath(new URL("../../fixtures/golden/llama", import.meta.url));
const root = mkdtempSync(join(tmpdir(), "edgewise-incidents-"));
after(() => rmSync(root, { recursive: true }));

test("a fault is refused unless the environment allows it", () => {
  assert.throws(() => parseFault("entry:0.5", {}), /refused unless EDGEWISE_ALLOW_FAULTS=1/);
  assert.throws(() => parseFault("entry:0.5", { EDGEWISE_ALLOW_FAULTS: "yes" }), /refused/);
  for (const text of ["entry", "entry:0", "entry:2", "toString:0.5", "none:0.5"])
    assert.throws(() => parseFault(text, { EDGEWISE_ALLOW_FAULTS: "1" }), /a fault is NAME:RATE/, text);
  assert.deepEqual(parseFault("tags:0.01", { EDGEWISE_ALLOW_FAULTS: "1" }), { name: "tags", rate: 0.01 });
});

const CAUSES: Record<FaultName, string[]> = {
  entry: ["mapping"],
  tags: ["epoch", "generation"],
  check: ["unchecked"],
};

for (const name of Object.keys(FAULTS) as FaultName[]) {
  test(`fault ${name}: the request ends with kv_integrity, incidents are written, the alarm is on`, async () => {
    const incidentFile = join(root, `${name}.jsonl`);
    const engine = startEngine({
      runner: {
        kind: "model",
        dir,
        backend: "cpu",
        threads: 1,
        slots: 2,
        kvBytes: 2 ** 22,
        integrity: "tags",
      },
      scheduler: { incidentFile, incidentsPerMinute: 0, selfTestMs: 0, fault: { name, rate: 1 } },
    });
    try {
      await engine.ready();
      const limits = {
        sampling: GREEDY,
        maxTokens: 20,
        stopTokens: [],
        minTokens: 0,
        salt: "a",
        label: "chat",
      };
      const events = [];
      const prompt = Int32Array.from([1, 2, 3]);
      for await (const event of engine.generate({ prompt, ...limits }, new AbortController().signal))
        events.push(event);
      const last = events.at(-1)!;
      assert.ok(last.type === "error" && last.code === "kv_integrity" && last.retryable);
      for (let i = 0; i < 500 && engine.status().integrity !== "alarm"; i++)
        await new Promise((resolve) => setTimeout(resolve, 5));
      assert.equal(engine.status().integrity, "alarm");
    } finally {
      await engine.close();
    }
    const incidents = readIncidents(readFileSync(incidentFile, "utf8"), incidentFile);
    assert.ok(incidents.length > 0);
    for (const { cause, label } of incidents) {
      assert.ok(CAUSES[name].includes(cause), cause);
      assert.equal(label, "chat");
    }
  });
}
