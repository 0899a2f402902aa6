// The questions that the GPU smoke test asks as tokens are still those of the held-out set, and the answers right.
import assert from "node:assert/strict";
import { test } from "node:test";
import { heldOut, isAnswer, promptTokens, textModel, textOf } from "../../fixtures/make_questions.ts";
import { QUESTIONS } from "../../gpu/bundled.ts";

test("every question is a held-out one as the chat template and the tokenizer write it today, its answer right", () => {
  const text = textModel();
  const known = new Map(heldOut().map((each) => [String(promptTokens(text, each.request)), each]));
  assert.ok(QUESTIONS.questions.length >= 10);
  for (const { task, prompt, answer } of QUESTIONS.questions) {
    const question = known.get(String(prompt));
    assert.equal(question?.task, task, "run node test/fixtures/make_questions.ts again");
    assert.ok(isAnswer(textOf(text, answer.slice(0, -1)), question.answer));
    assert.ok(QUESTIONS.stop.includes(answer.at(-1) as number));
  }
  assert.deepEqual(QUESTIONS.stop, text.eos);
});
