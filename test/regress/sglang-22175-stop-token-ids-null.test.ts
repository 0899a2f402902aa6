// SGLang #22175: `stop_token_ids: [null]` passed the checks and crashed the server.
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseChatRequest } from "../../gpu-node/contract/chat.ts";
import { parseCompletionRequest } from "../../gpu-node/contract/completions.ts";

test("a null among token ids is refused by its position, in stops and in prompts", () => {
  const chat = { model: "m", messages: [{ role: "user", content: "x" }], stop_token_ids: [1, null] };
  assert.throws(() => parseChatRequest(chat), { status: 400, param: "stop_token_ids[1]" });
  for (const prompt of [
    [1, null],
    [null, 1],
    [[1], [null]],
  ]) {
    assert.throws(() => parseCompletionRequest({ model: "m", prompt }), { status: 400 });
  }
});
