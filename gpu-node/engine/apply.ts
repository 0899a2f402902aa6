// What becomes of a step's results.
import { PAGE_TOKENS } from "../kv/format.ts";
import type { TagCause } from "../kv/tag-layout.ts";
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

/** What a completed step has left: records of its sampled rows, and a verdict per row where pages are checked. */
export interface StepResults {
  results: Int32Array;
  verdicts: Int32Array | null;
}

/** Applies a completed step; steps come in the order of their submission. */
export function applyStep(
  sequences: Sequences,
  record: StepRecord,
  { results, verdicts }: StepResults,
  events: SequenceEvents,
): Applied {
  const applied: Applied = { tokens: 0, stale: 0 };
  let sample = 0;
  for (let row = 0; row < record.rows; row++) {
    const index = record.sampled[row] ? sample++ : -1;
    const cause = rowCause(sequences, record, row, verdicts);
    if (!record.current(row)) {
      applied.stale++;
      continue;
    }
    const request = record.requests[row]!;
    if (cause !== null) {
      // No token of this step, none of its pages into the prefix cache.
      events.distrusted(request, cause, record, row, verdicts);
      continue;
    }
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

// Why the row's pages can't be trusted; null when they can, or when nothing is checked.
function rowCause(
  { tracker }: Sequences,
  record: StepRecord,
  row: number,
  verdicts: Int32Array | null,
): TagCause | null {
  if (tracker.mode === "off") {
    // A device that checks what nobody has told it voids every row.
    if (verdicts) throw new Error("engine: the runner checks page tags, but nobody keeps track of pages");
    return null;
  }
  return tracker.verdict(verdicts, row, {
    step: record.step,
    slot: record.slots[row],
    epoch: record.epochs[row],
    phase: record.phases[row],
    pages: Math.ceil(record.after[row] / PAGE_TOKENS),
  });
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
