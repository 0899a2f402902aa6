// tenstorrent/vllm #415: answers were right when a prefix was computed and wrong when it was found: resuming from a
// computed count above 0 used wrong offsets.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Loop } from "../../gpu-node/engine/loop.ts";
import type { InboxMessage } from "../../gpu-node/engine/messages.ts";
import { openModelRunner } from "../../gpu-node/engine/open-runner.ts";
import { unpackTokens } from "../../gpu-node/engine/results.ts";
import { GREEDY } from "../../gpu-node/engine/sampling.ts";

test("a real model continues a found prefix as it continues a computed one, for every length around a page's end", () => {
  const dir = fileURLToPath(new URL("../fixtures/golden/qwen3", import.meta.url));
  const precision = { activations: "f32", kvFormat: "f32" } as const;
  const size = { slots: 2, maxLen: 512, kvBytes: 2 ** 25 };
  const runner = openModelRunner({ kind: "model", dir, backend: "cpu", threads: 2, ...precision, ...size });
  const answer = (loop: Loop, inbox: InboxMessage[], got: number[], handle: number, prompt: Int32Array) => {
    got.length = 0;
    const request = {
      prompt,
      sampling: GREEDY,
      maxTokens: 12,
      stopTokens: [],
      minTokens: 0,
      salt: "",
      label: "",
    };
    inbox.push({ kind: "generate", handle, request });
    while (loop.tick());
    return [...got];
  };
  const engine = (prefixCache: boolean) => {
    const inbox: InboxMessage[] = [];
    const got: number[] = [];
    const post = (tokens: Int32Array) => unpackTokens(tokens, (_, token) => got.push(token));
    const options = { maxBatchTokens: 512, maxRunning: 2, maxWaiting: 9, watermarkPages: 0, prefixCache };
    const loop = new Loop(runner, performance, { next: () => inbox.shift() ?? null }, { post }, options);
    let handle = 0;
    return (prompt: Int32Array) => answer(loop, inbox, got, ++handle, prompt);
  };
  const lengths = [65, 66, 127, 128, 129, 190, 193];
  const prompt = Int32Array.from({ length: 193 }, (_, i) => (i * 31 + (i % 7)) % runner.limits.vocab);
  const cold = engine(false);
  const wanted = lengths.map((length) => cold(prompt.slice(0, length)));
  const warm = engine(true);
  warm(prompt);
  for (const [i, length] of lengths.entries()) {
    assert.deepEqual(warm(prompt.slice(0, length)), wanted[i], `prompt of ${length}`);
  }
  runner.dispose();
});
