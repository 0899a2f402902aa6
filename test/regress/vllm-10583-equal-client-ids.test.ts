// vLLM #10583, #15041, #27987: requests under the same client-chosen id broke the engine or mixed their streams.
import assert from "node:assert/strict";
import { promptOf, scripted } from "../scripted/harness.ts";

scripted("requests with the same label are told apart, and one can be aborted alone", {}, function* (h) {
  const label = "chatcmpl-1";
  const [a, b, c] = [1, 2, 3].map((seed) => h.start(promptOf(20, seed), 15, { label }));
  yield;
  yield;
  h.abort(b);
  h.finish();
  assert.equal(a.tokens.length, 15);
  assert.ok(b.tokens.length < 15);
  assert.equal(c.tokens.length, 15);
  h.assertEmpty();
});
