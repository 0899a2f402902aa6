// The results of a step: one record of 48 int32 per sampled row, in the order of the plan's sampling rows.
//
//   [ slot, position, token, epoch, logprob bits, top count, status, 0 | 20 x (id, logprob bits) ]
import type { TokenLogprobs } from "../contract/engine.ts";
import { PLAN_LAYOUT as L } from "./plan.ts";
import { bitsFloat } from "./sampling.ts";

/** The token of record `index`, or -1 when the row was void. */
export function resultToken(results: Int32Array, index: number): number {
  return results[index * L.result_stride + L.result_token];
}

/** True when the record belongs to this slot and epoch and holds a token. */
export function resultOk(results: Int32Array, index: number, slot: number, epoch: number): boolean {
  const at = index * L.result_stride;
  return (
    results[at + L.result_status] === L.status_ok &&
    results[at + L.result_slot] === slot &&
    results[at + L.result_epoch] === epoch
  );
}

/** Why a record holds no token, for the error that its request ends with. */
export function resultFault(results: Int32Array, index: number): string {
  const at = index * L.result_stride;
  return results[at + L.result_status] === L.status_nan
    ? "the model produced logits that are not numbers"
    : `the sampler returned no token (status ${results[at + L.result_status]})`;
}

/** Ints that packToken needs at most. */
export const PACKED_TOKEN = 4 + 2 * 20;

/**
 * Appends one token of request `handle` to a message to the main thread and returns the new end:
 *   [ handle, token, -1 ]                                     without log probabilities
 *   [ handle, token, top count, logprob bits | (id, bits)* ]  with
 */
export function packToken(
  into: Int32Array,
  end: number,
  handle: number,
  results: Int32Array,
  index: number,
  logprobs: boolean,
): number {
  const at = index * L.result_stride;
  into[end++] = handle;
  into[end++] = results[at + L.result_token];
  if (!logprobs) {
    into[end++] = -1;
    return end;
  }
  const count = results[at + L.result_top_count];
  into[end++] = count;
  into[end++] = results[at + L.result_logprob];
  for (let i = 0; i < 2 * count; i++) into[end++] = results[at + L.result_top + i];
  return end;
}

/** Calls `visit` for every token of a message that packToken filled. */
export function unpackTokens(
  packed: Int32Array,
  visit: (handle: number, token: number, logprobs: TokenLogprobs | null) => void,
): void {
  for (let at = 0; at < packed.length; ) {
    const handle = packed[at++];
    const token = packed[at++];
    const count = packed[at++];
    if (count < 0) {
      visit(handle, token, null);
      continue;
    }
    const logprobs: TokenLogprobs = { logprob: bitsFloat(packed[at++]), top: [] };
    for (let i = 0; i < count; i++, at += 2) {
      logprobs.top.push([packed[at], bitsFloat(packed[at + 1])]);
    }
    visit(handle, token, logprobs);
  }
}
