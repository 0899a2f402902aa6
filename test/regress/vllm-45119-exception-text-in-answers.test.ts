// vLLM #45119: the text of internal exceptions, with addresses in it, was sent to clients.
import assert from "node:assert/strict";
import { test } from "node:test";
import { events, harness, ids } from "../gpu-node/server/harness.ts";

test("the reason of an engine failure goes to the log, not to the client, before and in a stream", async () => {
  const message = "SIGSEGV at 0x7f0012345678 in /opt/model.node";
  for (const at of [0, 1]) {
    const event = { type: "error" as const, code: "engine_failed" as const, message, retryable: true };
    const h = await harness({ groups: [ids("a"), ids("b")], error: { at, event } });
    const body = { model: "nano", messages: [{ role: "user", content: "x" }], stream: true };
    const response = await h.post("/v1/chat/completions", body);
    const shown = at === 0 ? await response.text() : JSON.stringify(await events(response));
    assert.match(shown, /"code":"engine_failed"/);
    assert.doesNotMatch(shown, /0x|opt/);
  }
});
