// The bundled model's greedy continuation of a prompt, by the runner alone: few tokens, so that it fits the emulator.
import { type ModelRunnerOptions, openModelRunner } from "../../gpu-node/engine/open-runner.ts";
import { evaluateGreedy } from "../../gpu-node/eval/greedy.ts";
import type { BackendName } from "../../gpu-node/native/addon.ts";
import { QUESTIONS } from "./bundled.ts";
import type { Outcome } from "./table.ts";

const NANO = new URL("../../gpu-node/models/nano", import.meta.url).pathname;
const PROMPT = 24;
const TOKENS = 4;

/** The same tokens on `cuda` as on `cpu`, from a prompt of 24 tokens. */
export function checkFirstTokens(): Outcome {
  const wanted = firstTokens("cpu");
  const got = firstTokens("cuda");
  const failures = got.join() === wanted.join() ? [] : [`cpu says ${wanted.join()}, cuda says ${got.join()}`];
  return { cases: 1, failures, note: got.join(" ") };
}

function firstTokens(backend: BackendName): number[] {
  const size = { slots: 1, maxLen: 64, maxTokens: PROMPT, depth: 1 };
  const options: ModelRunnerOptions = { kind: "model", dir: NANO, backend, ...size };
  const runner = openModelRunner(options);
  try {
    const prompt = QUESTIONS.questions.flatMap((question) => question.prompt).slice(0, PROMPT);
    const unknown = { continuation: new Array<number>(TOKENS).fill(-1), margins: [] };
    return evaluateGreedy(runner, Int32Array.from(prompt), unknown, PROMPT).continuation;
  } finally {
    runner.dispose();
  }
}
