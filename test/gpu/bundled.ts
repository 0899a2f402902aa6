// The bundled models through the engine's thread: questions with known answers, as tokens, because tokenizer and chat
// template need npm packages and this must run without. test/gpu-node/models/questions.test.ts keeps the tokens current.
import { readFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import type { EngineEvent } from "../../gpu-node/contract/engine.ts";
import { type EngineClient, startEngine } from "../../gpu-node/engine/client.ts";
import type { ModelRunnerOptions } from "../../gpu-node/engine/open-runner.ts";
import { GREEDY } from "../../gpu-node/engine/sampling.ts";
import type { KvFormat } from "../../gpu-node/kv/format.ts";
import type { Outcome } from "./table.ts";

export interface Question {
  task: string;
  prompt: number[];
  /** The right answer, the end token included. */
  answer: number[];
}

export interface Questions {
  /** Ends an answer. */
  stop: number[];
  questions: Question[];
}

const MODELS = new URL("../../gpu-node/models/", import.meta.url).pathname;
export const QUESTIONS: Questions = JSON.parse(
  readFileSync(new URL("../fixtures/nano-questions.json", import.meta.url), "utf8"),
);
/** Of all questions: each task is right in over 90 % of its held-out instances. */
const MAY_BE_WRONG = 0.2;
const TOP_LOGPROBS = 5;

type Events = Exclude<EngineEvent, { type: "finish" }>[];

async function withEngine<T>(
  model: string,
  settings: Partial<ModelRunnerOptions>,
  body: (engine: EngineClient) => Promise<T>,
): Promise<T> {
  const runner = { kind: "model", dir: MODELS + model, backend: "cuda", kvBytes: 2 ** 28 } as const;
  const engine = startEngine({
    runner: { ...runner, ...settings },
    scheduler: { prefixCache: false },
    restarts: 0,
  });
  try {
    await engine.ready();
    return await body(engine);
  } finally {
    await engine.close();
  }
}

async function ask(
  engine: EngineClient,
  prompt: number[],
  maxTokens: number,
  topLogprobs = -1,
): Promise<Events> {
  const events: Events = [];
  const request = {
    prompt: Int32Array.from(prompt),
    sampling: { ...GREEDY, topLogprobs },
    maxTokens,
    stopTokens: QUESTIONS.stop,
    minTokens: 0,
    salt: "",
    label: "",
  };
  for await (const event of engine.generate(request, new AbortController().signal)) {
    if (event.type === "error") throw new Error(event.message);
    if (event.type !== "finish") events.push(event);
  }
  return events;
}

const tokensOf = (events: Events) => events.flatMap((event) => (event.type === "tokens" ? event.tokens : []));

export function askBundled(model: string, kvFormat: KvFormat, quick: boolean): Promise<Outcome> {
  const asked = quick ? QUESTIONS.questions.slice(0, 2) : QUESTIONS.questions;
  return withEngine(model, { kvFormat, slots: quick ? 2 : 64, maxLen: 4096 }, async (engine) => {
    const answers = await Promise.all(
      asked.map(async ({ prompt, answer }) => tokensOf(await ask(engine, prompt, answer.length))),
    );
    const wrong = asked.filter(({ answer }, i) => !isDeepStrictEqual(answers[i], answer));
    const { pagesOwned, pagesFree, pagesCached, pagesTotal } = engine.status();
    const failures: string[] = [];
    if (wrong.length > MAY_BE_WRONG * asked.length) {
      failures.push(`${wrong.length} of ${asked.length} wrong: ${wrong.map(({ task }) => task).join(", ")}`);
    }
    if (pagesOwned !== 0 || pagesFree + pagesCached !== pagesTotal) {
      failures.push(
        `pages: ${pagesOwned} owned, ${pagesFree} free and ${pagesCached} cached of ${pagesTotal}`,
      );
    }
    return { cases: asked.length, failures, note: `${asked.length - wrong.length} of ${asked.length} right` };
  });
}

/** `--deterministic` (DESIGN D20): the same tokens and log probabilities, to the bit, alone, among 7 and among 64. */
export function checkDeterministic(quick: boolean): Promise<Outcome> {
  const batches = quick ? [2] : [7, 64];
  const [{ prompt }, ...others] = QUESTIONS.questions;
  const tokens = quick ? 2 : 16;
  return withEngine(
    "nano",
    { deterministic: true, slots: Math.max(...batches), maxLen: 2048 },
    async (engine) => {
      const alone = await ask(engine, prompt, tokens, TOP_LOGPROBS);
      const failures: string[] = [];
      for (const batch of batches) {
        const rest = Array.from({ length: batch - 1 }, (_, i) => others[i % others.length].prompt);
        const [among] = await Promise.all(
          [prompt, ...rest].map((each) => ask(engine, each, tokens, TOP_LOGPROBS)),
        );
        if (!isDeepStrictEqual(among, alone)) failures.push(`in a batch of ${batch} the bits differ`);
      }
      return { cases: batches.length, failures };
    },
  );
}
