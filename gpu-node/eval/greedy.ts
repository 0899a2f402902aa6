import type { ModelRunner } from "../engine/model-runner.ts";
import { PlanWriter } from "../engine/plan.ts";
import { resultFault, resultOk, resultToken } from "../engine/results.ts";
import { GREEDY } from "../engine/sampling.ts";
import { PAGE_TOKENS } from "../kv/format.ts";
import type { GreedyGolden } from "./golden.ts";

export interface GreedyReport {
  match: boolean;
  /** Equal tokens from the start. */
  matched: number;
  length: number;
  continuation: number[];
  /** The reference's margin at the first token that differs: a small one may flip in bf16. */
  margin_at_difference: number | null;
}

const SLOT = 0;
const EPOCH = 1;

/** Continues the prompt greedily, as the engine would for a request, and compares with the golden continuation. */
export function evaluateGreedy(
  runner: ModelRunner,
  prompt: Int32Array,
  { continuation: want, margins }: GreedyGolden,
  chunk: number,
): GreedyReport {
  const writer = new PlanWriter(runner.limits);
  const pages = Math.ceil((prompt.length + want.length) / PAGE_TOKENS);
  const table = Int32Array.from({ length: pages }, (_, i) => i + 1);
  const got: number[] = [];
  let past = 0;
  for (let step = 1; got.length < want.length; step++) {
    writer.begin(step);
    if (past === 0) {
      writer.release(SLOT);
      writer.pages(SLOT, table, 0, pages);
      writer.history(SLOT, prompt, 0, prompt.length);
      writer.sampling(SLOT, GREEDY);
    }
    const prefill = past < prompt.length;
    const count = prefill ? Math.min(chunk, prompt.length - past) : 1;
    const samples = past + count >= prompt.length;
    writer.row(SLOT, count, past, samples, EPOCH, prompt.length);
    if (prefill) writer.endExtend();
    const results = runner.wait(runner.submit(writer.finish()));
    past += count;
    if (!samples) continue;
    if (!resultOk(results, 0, SLOT, EPOCH)) throw new Error(`eval: ${resultFault(results, 0)}`);
    got.push(resultToken(results, 0));
  }
  const differs = want.findIndex((token, i) => token !== got[i]);
  return {
    match: differs < 0,
    matched: differs < 0 ? want.length : differs,
    length: want.length,
    continuation: got,
    margin_at_difference: differs < 0 ? null : (margins[differs] ?? null),
  };
}
