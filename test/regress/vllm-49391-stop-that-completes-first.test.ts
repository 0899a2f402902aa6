// vLLM #49391, #50200: of several stop strings in one step the first in the list won, not the first in the text.
import assert from "node:assert/strict";
import { test } from "node:test";
import { END, harness, ids } from "../gpu-node/server/harness.ts";

test("when one step brings several stops, the one that completes first cuts the text", async () => {
  const h = await harness({ groups: [[...ids("one ; two ## three"), END]] });
  const messages = [{ role: "user", content: "x" }];
  for (const stop of [
    ["##", ";"],
    [";", "##"],
    ["; two ##", ";"],
  ]) {
    const response = await h.post("/v1/chat/completions", { model: "nano", messages, stop });
    const answer = (await response.json()) as { choices: { message: { content: string } }[] };
    assert.equal(answer.choices[0].message.content, "one ");
  }
});
