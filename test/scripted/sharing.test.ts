// Equal prompts that arrive together, as the choices of one request do: their beginning is computed once.
import assert from "node:assert/strict";
import { ending, promptOf, scripted, usage } from "./harness.ts";

const CHOICES = 8;
/** Four full pages and a bit. */
const PROMPT = promptOf(300);
const SHARED = 256;

scripted(
  "choices compute and hold the full pages of their prompt once",
  { maxBatchTokens: 1024 },
  function* (h) {
    const choices = Array.from({ length: CHOICES }, () => h.start(PROMPT, 3));
    while (choices.some(({ tokens }) => tokens.length === 0)) {
      yield;
      const pages = 4 + h.sequences.running.length;
      assert.ok(h.pool.owned <= pages, `${h.pool.owned} pages of ${h.sequences.running.length} choices`);
    }
    h.finish();
    const cached = choices.map((choice) => usage(choice).cachedTokens);
    assert.deepEqual(cached, [0, ...Array(CHOICES - 1).fill(SHARED)]);
    const own = PROMPT.length - SHARED + 2;
    assert.equal(h.loop.counters.computed_tokens, SHARED + CHOICES * own);
    h.assertEmpty();
  },
);

scripted(
  "a prompt waits only for the pages that it shares, not for the whole of the other one",
  { maxBatchTokens: 128 },
  function* (h, depth) {
    // The first page is written by the first of two chunks; the second one leaves budget.
    const long = h.start([...PROMPT.slice(0, 64), ...promptOf(84, 2)], 2);
    const short = h.start([...PROMPT.slice(0, 64), ...promptOf(20, 3)], 2);
    yield;
    h.finish();
    assert.equal(usage(short).cachedTokens, 64);
    assert.equal(short.firstTick, long.firstTick + depth - 1);
  },
);

scripted("when the choice that computes leaves, another takes over", { maxBatchTokens: 64 }, function* (h) {
  const choices = Array.from({ length: CHOICES }, () => h.start(PROMPT, 3));
  for (let gone = 0; gone < CHOICES - 1; gone++) {
    yield;
    h.abort(choices[gone]);
  }
  h.finish();
  assert.equal(ending(choices[CHOICES - 1]), "length");
  h.assertEmpty();
});

for (const preemptEvery of [2, 3]) {
  scripted(
    `choices all finish with a preemption every ${preemptEvery} steps`,
    { preemptEvery, pages: 12, maxBatchTokens: 64 },
    function* (h) {
      const choices = Array.from({ length: CHOICES }, () => h.start(PROMPT, 70));
      yield;
      h.finish();
      assert.deepEqual(choices.map(ending), Array(CHOICES).fill("length"));
      h.assertEmpty();
    },
  );
}

scripted("equal prompts of two accounts wait for nobody", {}, function* (h) {
  const [a, b] = ["a", "b"].map((salt) => h.start(promptOf(100), 2, { salt }));
  yield;
  assert.equal(h.sequences.running.length, 2);
  h.finish();
  assert.deepEqual(
    [a, b].map((heard) => usage(heard).cachedTokens),
    [0, 0],
  );
});

scripted("without a prefix cache equal prompts wait for nobody", { prefixCache: false }, function* (h) {
  for (let i = 0; i < 2; i++) h.start(promptOf(100), 2);
  yield;
  assert.equal(h.sequences.running.length, 2);
  h.finish();
});
