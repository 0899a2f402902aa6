// SGLang #18694, #18822, #11981: with overlapped steps a request that had finished was retracted or aborted as well, and
// its pages were freed twice.
import assert from "node:assert/strict";
import { test } from "node:test";
import { simToken } from "../../gpu-node/engine/sim-runner.ts";
import { ending, Harness, promptOf } from "../scripted/harness.ts";

test("an abort that crosses the end of its request changes nothing", () => {
  const prompt = promptOf(20);
  for (let after = 1; after < 12; after++) {
    const h = new Harness({}, 2);
    const stop = [...prompt];
    for (let i = 0; i < 5; i++) stop.push(simToken(stop, stop.length, h.vocab));
    const a = h.start(prompt, 50, { stopTokens: [stop.at(-1)!] });
    for (let i = 0; i < after; i++) h.tick();
    h.abort(a);
    h.finish();
    assert.ok(["stop", "abort"].includes(ending(a))); // the harness fails on a second end
    h.assertOracle(a);
    h.assertEmpty();
  }
});

test("preemptions of requests about to end leave no page and no slot behind", () => {
  for (let every = 1; every < 6; every++) {
    const h = new Harness({ preemptEvery: every + 1, slots: 4, pages: 10 }, 2);
    for (let i = 0; i < 12; i++) h.start(promptOf(30 + i, i), 1 + (i % 4));
    h.finish();
    for (const heard of h.heard.values()) h.assertOracle(heard);
    h.assertEmpty();
  }
});
