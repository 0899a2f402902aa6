import type { ModelRunner } from "../engine/model-runner.ts";
import { CheckpointError } from "../weights/errors.ts";
import type { Golden } from "./golden.ts";
import { compareLogits, type LogitMetrics } from "./metrics.ts";

export interface LogitReport extends LogitMetrics {
  tokens: number;
  /** Rows, of one token and layer each, that attention read from the KV cache. */
  pool_rows_read: number;
}

/** Runs the golden tokens through the runner, `chunk` at a time, and compares the logits of every position. */
export function evaluateLogits(runner: ModelRunner, golden: Golden, chunk: number): LogitReport {
  const { spec } = runner.model;
  if (spec.vocab !== golden.vocab) {
    const what = `the golden logits are over ${golden.vocab} tokens, the model's over ${spec.vocab}`;
    throw new CheckpointError("wrong_tensors", "eval", what);
  }
  const ours = new Float32Array(golden.logits.length);
  let poolRows = 0;
  runner.evaluate(golden.tokens, chunk, (first, _count, logits) => {
    ours.set(logits, first * spec.vocab);
    // Tokens of this chunk take each other's keys and values from the step itself; what lies before is in the pool.
    poolRows += first * spec.layers.length;
  });
  return {
    ...compareLogits(golden.logits, ours, spec.vocab),
    tokens: golden.tokens.length,
    pool_rows_read: poolRows,
  };
}
