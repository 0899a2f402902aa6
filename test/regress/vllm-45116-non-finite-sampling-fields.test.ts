// vLLM #45116: infinite or NaN temperatures and penalties passed range checks that compared the wrong way round.
import assert from "node:assert/strict";
import { test } from "node:test";
import { parseChatRequest } from "../../gpu-node/contract/chat.ts";
import { parseJsonObject } from "../../gpu-node/contract/json.ts";

test("a number beyond float64 in JSON is refused in every sampling field", () => {
  const fields = [
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
  ];
  for (const field of fields) {
    for (const value of ["1e999", "-1e999"]) {
      const body = `{"model":"m","messages":[{"role":"user","content":"x"}],"${field}":${value}}`;
      const parsed = parseJsonObject(new TextEncoder().encode(body));
      assert.throws(() => parseChatRequest(parsed), { code: "invalid_value", param: field });
    }
  }
});
