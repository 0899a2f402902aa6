// `--deterministic`: how a sequence is cut into steps changes no bit, also in bfloat16.
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { openModelRunner } from "../../../gpu-node/engine/open-runner.ts";

const MODELS = {
  "bundled model": "../../../gpu-node/models/nano",
  "GQA model": "../../fixtures/golden/llama",
};
const TOKENS = Int32Array.from({ length: 150 }, (_, i) => (i * 37 + 11) % 60);

for (const [name, folder] of Object.entries(MODELS)) {
  test(`deterministic bf16 logits have the same bits in chunks of any length: ${name}`, () => {
    const dir = fileURLToPath(new URL(folder, import.meta.url));
    const size = { slots: 2, maxLen: TOKENS.length, maxTokens: TOKENS.length, kvBytes: 2 ** 26 };
    const precision = { activations: "bf16", kvFormat: "bf16", deterministic: true } as const;
    const runner = openModelRunner({ kind: "model", dir, backend: "cpu", threads: 2, ...size, ...precision });
    const inChunks = (chunk: number) => {
      const all = new Float32Array(TOKENS.length * runner.limits.vocab);
      runner.evaluate(TOKENS, chunk, (first, _count, logits) => all.set(logits, first * runner.limits.vocab));
      return Buffer.from(all.buffer);
    };
    try {
      const whole = inChunks(TOKENS.length);
      for (const chunk of [1, 3, 4, 7, 64]) assert.ok(inChunks(chunk).equals(whole), `chunk ${chunk}`);
    } finally {
      runner.dispose();
    }
  });
}
