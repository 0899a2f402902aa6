// The bundled models answer what they were never trained on, through a real node: template, tokenizer, engine, kernels.
// The questions are those of ../../fixtures/make_held_out.py; the shares of right answers of 1,000 are in the model cards.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type OpenAI from "openai";
import { ROOT } from "../../../gpu-node/local/stack.ts";
import { type RunningNode, startNode } from "./node.ts";

interface Instance {
  messages: OpenAI.ChatCompletionMessageParam[];
  tools?: OpenAI.ChatCompletionTool[];
  answer: string | { name: string; arguments: object };
}

interface HeldOut {
  tasks: Record<string, Instance[]>;
  recall: { facts: string; questions: { question: string; answer: string }[] }[];
}

const { tasks, recall }: HeldOut = JSON.parse(
  readFileSync(new URL("../../fixtures/nano-held-out.json", import.meta.url), "utf8"),
);
/** Of ten or twelve. A product is right 95 times in 100, everything else nearly always. */
const MAY_BE_WRONG = 1;
/** The longest right answer is a copy of 200 characters: 197 tokens. */
const MAX_TOKENS = 256;
const RECALLED_TOKENS = 2_000;

const workedOut = (content: string) => /Answer: (\w+)\.?$/.exec(content)?.[1];
/** What counts in the text of an answer; all of it for the other tasks. */
const READ: Record<string, (content: string) => string | undefined> = {
  sum: workedOut,
  difference: workedOut,
  product: workedOut,
  "multiple choice": workedOut,
};

const CONFIGURATIONS = ["nano", "nano-int4"].flatMap((model) =>
  ["fp8", "bf16"].map((kv) => ({ model, kv, flags: ["--kv", kv] })),
);

for (const { model, kv, flags } of CONFIGURATIONS) {
  describe(`${model} with ${kv} KV`, () => {
    let node: RunningNode;
    before(async () => {
      node = await startNode(join(ROOT, "gpu-node/models", model), flags);
    });
    after(() => node?.stop());

    const about = (facts: string, question: string) =>
      node.chat({ messages: [{ role: "user", content: `${facts}\n${question}` }], max_tokens: MAX_TOKENS });
    const textOf = (completion: OpenAI.ChatCompletion) => completion.choices[0].message.content;

    test("questions of all tasks at once, in one batch, get the right answers, each its own", async () => {
      const asked = Object.entries(tasks).flatMap(([name, instances]) =>
        instances.map((instance) => ({ name, instance })),
      );
      const outcomes = await Promise.all(
        asked.map(async ({ name, instance: { answer, ...request } }) => {
          const [choice] = (await node.chat({ ...request, max_tokens: MAX_TOKENS })).choices;
          return {
            name,
            right: isRight(name, choice, answer),
            shown: JSON.stringify([answer, choice.message]),
          };
        }),
      );
      for (const name of Object.keys(tasks)) {
        const wrong = outcomes.filter((outcome) => outcome.name === name && !outcome.right);
        assert.ok(wrong.length <= MAY_BE_WRONG, `${name}: ${wrong.map(({ shown }) => shown).join("\n")}`);
      }
    });

    test("a fact of thousands of tokens ago is recalled, also when its pages come from the prefix cache", async () => {
      const wrong: string[] = [];
      for (const turn of recall[0].questions.keys()) {
        const completions = await Promise.all(
          recall.map(({ facts, questions }) => about(facts, questions[turn].question)),
        );
        for (const [i, completion] of completions.entries()) {
          const { prompt_tokens = 0, prompt_tokens_details } = completion.usage ?? {};
          assert.ok(prompt_tokens > RECALLED_TOKENS, `${prompt_tokens} tokens`);
          const cached = prompt_tokens_details?.cached_tokens ?? 0;
          if (turn === 0) assert.equal(cached, 0);
          else assert.ok(cached > RECALLED_TOKENS, `${cached} tokens cached`);
          const { question, answer } = recall[i].questions[turn];
          if (textOf(completion) !== answer) wrong.push(`${question} ${answer}: ${textOf(completion)}`);
        }
      }
      assert.ok(wrong.length <= MAY_BE_WRONG, wrong.join("\n"));
    });
  });
}

describe("nano, deterministic", () => {
  test("an answer and its probabilities have the same bits alone and among others", async () => {
    const node = await startNode(join(ROOT, "gpu-node/models/nano"), [
      "--deterministic",
      "--no-prefix-cache",
    ]);
    try {
      const asked = Object.values(tasks).map(([{ answer: _, ...request }]) => request);
      const ask = async (request: (typeof asked)[number]) => {
        const [choice] = (await node.chat({ ...request, max_tokens: 24, logprobs: true })).choices;
        return choice;
      };
      const together = await Promise.all(asked.map(ask));
      for (const [i, request] of asked.entries()) assert.deepEqual(await ask(request), together[i]);
    } finally {
      await node.stop();
    }
  });
});

function isRight(
  name: string,
  { message, finish_reason }: OpenAI.ChatCompletion.Choice,
  answer: Instance["answer"],
): boolean {
  if (typeof answer === "string") {
    const content = message.content ?? "";
    const read = READ[name]?.(content) ?? content;
    return finish_reason === "stop" && read === answer && !message.tool_calls;
  }
  const [call, ...more] = message.tool_calls ?? [];
  if (call?.type !== "function" || more.length > 0 || finish_reason !== "tool_calls") return false;
  const { name: called, arguments: given } = call.function;
  return called === answer.name && canonical(JSON.parse(given)) === canonical(answer.arguments);
}

/** JSON with the keys in order. */
function canonical(value: object): string {
  return JSON.stringify(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
