// The plan: one step as one Int32Array. native/core/plan.h has the same constants; a test compares the two.
//
//   [ header 16 | updates: changes of slot state, applied in order | rows: extend rows, then decode rows ]
//
//   update  [ kind, slot, start, count | payload ]
//     release  forget the slot's page table and sampling       payload none, start 0
//     pages    page_table[slot][start ..] = payload             count page ids
//     history  history[slot][start ..] = payload                count token ids
//     params   params[slot] = payload                           count 16, f32 as bits (sampling.ts)
//     bias     bias_ids[slot], bias_values[slot] = payload      count ids, then count f32 as bits
//   row     [ slot, new tokens, past tokens, sample?, epoch, prompt length, 0, 0 ]
//
// A row computes positions past .. past + new - 1 and takes its tokens from history[slot], where prompts arrive by
// updates and sampled tokens are written by the sampler: a decode row needs no token from the host.
import type { SamplingParams } from "../contract/engine.ts";
import { MAX_LOGIT_BIAS } from "../contract/engine.ts";
import { PAGE_TOKENS } from "../kv/format.ts";
import { PARAM_COUNT, packBias, packSampling } from "./sampling.ts";

/** Names as native/core/plan.h exports them through addon.planLayout(). */
export const PLAN_LAYOUT = {
  magic: 0x45575031,
  version: 1,
  page_tokens: PAGE_TOKENS,
  // header
  h_magic: 0,
  h_version: 1,
  h_length: 2,
  h_step_low: 3,
  h_step_high: 4,
  h_flags: 5,
  h_tokens: 6,
  h_rows: 7,
  h_extend_rows: 8,
  h_extend_tokens: 9,
  h_samples: 10,
  h_updates: 11,
  h_rows_offset: 12,
  header: 16,
  flag_all_logits: 1,
  // updates
  update_header: 4,
  update_release: 1,
  update_pages: 2,
  update_history: 3,
  update_params: 4,
  update_bias: 5,
  param_count: PARAM_COUNT,
  max_bias: MAX_LOGIT_BIAS,
  // rows
  row_slot: 0,
  row_new: 1,
  row_past: 2,
  row_sample: 3,
  row_epoch: 4,
  row_prompt: 5,
  row_stride: 8,
  // limits, the second argument of validatePlan
  l_slots: 0,
  l_max_pages: 1,
  l_max_len: 2,
  l_pages: 3,
  l_vocab: 4,
  l_max_tokens: 5,
  l_max_rows: 6,
  l_capacity: 7,
  limits: 8,
  // sampler records
  sample_stride: 4,
  result_slot: 0,
  result_position: 1,
  result_token: 2,
  result_epoch: 3,
  result_logprob: 4,
  result_top_count: 5,
  result_status: 6,
  result_top: 8,
  result_stride: 48,
  status_ok: 1,
  status_nan: 2,
} as const;

const L = PLAN_LAYOUT;

/** What a runner can take; the scheduler stays inside, the native validator refuses what is not. */
export interface PlanLimits {
  /** Sequences with device state at a time. */
  slots: number;
  /** Entries of a slot's page table. */
  maxPages: number;
  /** Tokens of a slot's history: the longest sequence, prompt and output. */
  maxLen: number;
  /** Pages of the pool, the null page included. */
  pages: number;
  vocab: number;
  /** New tokens and rows of one step. */
  maxTokens: number;
  maxRows: number;
}

/** Ints of a plan buffer: two admissions of any size, a release and a new page of every slot, all rows. */
export function planCapacity(limits: PlanLimits): number {
  const admission = limits.maxLen + limits.maxPages + PARAM_COUNT + 2 * MAX_LOGIT_BIAS + 4 * L.update_header;
  const slot = 2 * L.update_header + 1;
  return L.header + 2 * admission + limits.slots * slot + limits.maxRows * L.row_stride;
}

/** The limits as validatePlan takes them. */
export function packLimits(limits: PlanLimits): Int32Array {
  const packed = new Int32Array(L.limits);
  packed[L.l_slots] = limits.slots;
  packed[L.l_max_pages] = limits.maxPages;
  packed[L.l_max_len] = limits.maxLen;
  packed[L.l_pages] = limits.pages;
  packed[L.l_vocab] = limits.vocab;
  packed[L.l_max_tokens] = limits.maxTokens;
  packed[L.l_max_rows] = limits.maxRows;
  packed[L.l_capacity] = planCapacity(limits);
  return packed;
}

/** Writes one plan into a buffer that it owns: begin, updates, rows (extend first), finish. */
export class PlanWriter {
  readonly buffer: Int32Array;
  readonly limits: PlanLimits;
  #at = 0;
  #tokens = 0;
  #rows = 0;
  #extendRows = 0;
  #extendTokens = 0;
  #samples = 0;
  #updates = 0;
  #rowsOffset = 0;

  constructor(limits: PlanLimits) {
    this.limits = limits;
    this.buffer = new Int32Array(planCapacity(limits));
  }

  begin(step: number): void {
    const b = this.buffer;
    b.fill(0, 0, L.header);
    b[L.h_magic] = L.magic;
    b[L.h_version] = L.version;
    b[L.h_step_low] = step | 0;
    b[L.h_step_high] = Math.floor(step / 2 ** 32);
    this.#at = L.header;
    this.#tokens = this.#rows = this.#extendRows = this.#extendTokens = this.#samples = this.#updates = 0;
    this.#rowsOffset = 0;
  }

  /** Ints left for updates, with room kept for every row. */
  get room(): number {
    return this.buffer.length - this.#at - this.limits.maxRows * L.row_stride;
  }

  /** Ints that the updates of a newly admitted sequence take at most. */
  admissionInts(request: { length: number; source: { sampling: SamplingParams } }): number {
    const pages = Math.ceil(request.length / PAGE_TOKENS);
    const bias = 2 * request.source.sampling.logitBias.length;
    return request.length + pages + PARAM_COUNT + bias + 4 * L.update_header;
  }

  #update(kind: number, slot: number, start: number, count: number): void {
    const b = this.buffer;
    b[this.#at++] = kind;
    b[this.#at++] = slot;
    b[this.#at++] = start;
    b[this.#at++] = count;
    this.#updates++;
  }

  release(slot: number): void {
    this.#update(L.update_release, slot, 0, 0);
  }

  /** Entries [start, end) of the slot's page table. */
  pages(slot: number, table: Int32Array, start: number, end: number): void {
    this.#update(L.update_pages, slot, start, end - start);
    for (let i = start; i < end; i++) this.buffer[this.#at++] = table[i];
  }

  /** Tokens [start, end) of the slot's sequence. */
  history(slot: number, tokens: Int32Array, start: number, end: number): void {
    this.#update(L.update_history, slot, start, end - start);
    for (let i = start; i < end; i++) this.buffer[this.#at++] = tokens[i];
  }

  sampling(slot: number, params: SamplingParams): void {
    this.#update(L.update_params, slot, 0, PARAM_COUNT);
    packSampling(params, this.buffer, this.#at);
    this.#at += PARAM_COUNT;
    const count = params.logitBias.length;
    if (count === 0) return;
    this.#update(L.update_bias, slot, 0, count);
    packBias(params, this.buffer, this.#at);
    this.#at += 2 * count;
  }

  /** Rows come after all updates: first those that extend, then those that decode one token. */
  row(slot: number, fresh: number, past: number, sample: boolean, epoch: number, prompt: number): void {
    if (this.#rows === 0) this.#rowsOffset = this.#at;
    const b = this.buffer;
    b[this.#at] = slot;
    b[this.#at + 1] = fresh;
    b[this.#at + 2] = past;
    b[this.#at + 3] = sample ? 1 : 0;
    b[this.#at + 4] = epoch;
    b[this.#at + 5] = prompt;
    b[this.#at + 6] = 0;
    b[this.#at + 7] = 0;
    this.#at += L.row_stride;
    this.#rows++;
    this.#tokens += fresh;
    if (sample) this.#samples++;
  }

  /** The rows written so far are the extend rows. */
  endExtend(): void {
    this.#extendRows = this.#rows;
    this.#extendTokens = this.#tokens;
  }

  /** The plan as a view of the buffer, valid until the next begin(). */
  finish(flags = 0): Int32Array {
    const b = this.buffer;
    b[L.h_length] = this.#at;
    b[L.h_flags] = flags;
    b[L.h_tokens] = this.#tokens;
    b[L.h_rows] = this.#rows;
    b[L.h_extend_rows] = this.#extendRows;
    b[L.h_extend_tokens] = this.#extendTokens;
    b[L.h_samples] = flags & L.flag_all_logits ? this.#tokens : this.#samples;
    b[L.h_updates] = this.#updates;
    b[L.h_rows_offset] = this.#rows === 0 ? this.#at : this.#rowsOffset;
    return b.subarray(0, this.#at);
  }
}
