// vllm-ascend #14055: with asynchronous scheduling, blocks of a finished or aborted request went back to the pool while
// the step already submitted still wrote to them.
import assert from "node:assert/strict";
import { test } from "node:test";
import { simToken } from "../../gpu-node/engine/sim-runner.ts";
import { Harness, promptOf } from "../scripted/harness.ts";

const OPTIONS = { pages: 3, slots: 2, watermarkPages: 0, maxBatchTokens: 256, prefixCache: false };

test("pages of an aborted request are handed out only when the step in flight has completed", () => {
  const h = new Harness(OPTIONS, 2);
  const a = h.start(promptOf(130), 20);
  h.tick();
  assert.equal(h.loop.stepsInFlight, 1);
  h.abort(a);
  const b = h.start(promptOf(130, 2), 20);
  h.tick();
  assert.equal(h.loop.stepsInFlight, 0, "b could not be scheduled beside the step in flight");
  assert.equal(b.tokens.length, 0);
  h.finish();
  h.assertOracle(b);
  h.assertEmpty();
});

test("pages of a request that stopped are handed out only when its overrun step has completed", () => {
  const h = new Harness(OPTIONS, 2);
  const prompt = promptOf(130);
  h.start(prompt, 20, { stopTokens: [simToken(prompt, prompt.length, h.vocab)] });
  const b = h.start(promptOf(130, 2), 20);
  h.tick();
  h.tick();
  assert.equal(h.pool.fenced, 3, "the stop is known, the next step is in flight");
  h.finish();
  h.assertOracle(b);
  h.assertEmpty();
});
