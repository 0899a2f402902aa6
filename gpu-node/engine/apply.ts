// What becomes of a step's results.
import type { EngineRequest } from "./request.ts";
import { resultFault, resultOk, resultToken } from "./results.ts";
import type { SequenceEvents, Sequences } from "./sequences.ts";
import type { StepRecord } from "./step-record.ts";

export interface Applied {
  /** Tokens that reached a request. */
  tokens: number;
  /** Rows of requests that ended or were preempted meanwhile: computed for nothing, never published. */
  stale: number;
}

/** Applies a completed step; steps come in the order of their submission. */
export function applyStep(
  sequences: Sequences,
  record: StepRecord,
  results: Int32Array,
  events: SequenceEvents,
): Applied {
  const applied: Applied = { tokens: 0, stale: 0 };
  let sample = 0;
  for (let row = 0; row < record.rows; row++) {
    const index = record.sampled[row] ? sample++ : -1;
    if (!record.current(row)) {
      applied.stale++;
      continue;
    }
    const request = record.requests[row]!;
    request.completed = record.after[row];
    sequences.publish(request);
    if (index < 0) continue;
    request.pending--;
    if (resultOk(results, index, request.slot, request.epoch)) {
      applied.tokens++;
      acceptToken(sequences, request, results, index, events);
    } else {
      sequences.fail(request, "engine_failed", resultFault(results, index));
    }
  }
  sequences.pool.completed(record.step);
  return applied;
}

// A stop token counts as a completion token, and is reported; what was computed beyond it is neither.
function acceptToken(
  sequences: Sequences,
  request: EngineRequest,
  results: Int32Array,
  index: number,
  events: SequenceEvents,
): void {
  const token = resultToken(results, index);
  request.tokens[request.length++] = token;
  events.token(request, results, index);
  const { stopTokens, minTokens } = request.source;
  if (request.outputs > minTokens && stopTokens.includes(token)) sequences.finish(request, "stop");
  else if (request.outputs >= request.maxTokens) sequences.finish(request, "length");
}
