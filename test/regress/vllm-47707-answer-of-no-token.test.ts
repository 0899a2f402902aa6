// vLLM #47707: an answer without any text leaked the prompt.
import assert from "node:assert/strict";
import { test } from "node:test";
import { END, events, harness } from "../gpu-node/server/harness.ts";

test("an answer that ends with its first token is empty, whole and streamed", async () => {
  const h = await harness({ groups: [[END]] });
  const body = { model: "nano", messages: [{ role: "user", content: "a secret prompt" }] };
  const whole = await (await h.post("/v1/chat/completions", body)).text();
  assert.match(whole, /"content":""/);
  assert.doesNotMatch(whole, /secret/);
  const parts = await events(await h.post("/v1/chat/completions", { ...body, stream: true }));
  assert.doesNotMatch(JSON.stringify(parts), /secret/);
  assert.equal(parts.length, 3, "the role, the finish reason, [DONE]");
});
