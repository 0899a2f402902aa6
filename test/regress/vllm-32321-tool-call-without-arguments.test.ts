// vLLM #32321: a call without arguments was dropped, or came with arguments that are no JSON.
import assert from "node:assert/strict";
import { test } from "node:test";
import { END, harness, ids, mark } from "../gpu-node/server/harness.ts";

test("a call without arguments is reported with an empty object", async () => {
  const call = [mark("<|tool_call_begin|>"), ...ids("functions.now:0"), mark("<|tool_call_argument_begin|>")];
  const section = [mark("<|tool_calls_section_begin|>"), ...call, mark("<|tool_call_end|>")];
  const h = await harness({ groups: [[...section, mark("<|tool_calls_section_end|>"), END]] });
  const response = await h.post("/v1/chat/completions", {
    model: "nano",
    messages: [{ role: "user", content: "what time is it?" }],
    tools: [{ type: "function", function: { name: "now" } }],
  });
  type Called = { message: { tool_calls: { function: unknown }[] }; finish_reason: string };
  const { choices } = (await response.json()) as { choices: Called[] };
  assert.deepEqual(choices[0].message.tool_calls[0].function, { name: "now", arguments: "{}" });
  assert.equal(choices[0].finish_reason, "tool_calls");
});
