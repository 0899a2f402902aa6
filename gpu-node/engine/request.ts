// One sequence inside the engine.
import type { GenerateRequest } from "../contract/engine.ts";
import type { PrefixKeys } from "../kv/prefix.ts";
import type { Account } from "../kv/tags.ts";

/**
 *   tokens   [ prompt | outputs known to the host ] . . pending: sampled on the device, not yet applied
 *            0        prompt                        length                                length + pending
 *   computed [ KV computed by submitted steps ]     at most length + pending
 *
 * A sequence is live while it has a slot; `epoch` names one such stay, so that results of an earlier stay (before a
 * preemption, an abort, the end) are recognised and dropped.
 */
export class EngineRequest {
  /** Ours, ascending with arrival; clients choose no ids. */
  readonly handle: number;
  readonly source: GenerateRequest;
  /** What fits into the longest sequence; at most source.maxTokens. */
  readonly maxTokens: number;
  readonly prompt: number;
  /** [prompt + maxTokens] */
  readonly tokens: Int32Array;
  readonly keys: PrefixKeys;
  /** [pages of the longest sequence it can become] the first `pageCount` are held. */
  readonly pages: Int32Array;
  pageCount = 0;
  readonly account: Account;
  /** Generations under which `pages` were granted; no room when nothing is tracked. */
  readonly grants: Int32Array;
  /** Index into PHASES of the next row's pages, set by an admission. */
  phase = 0;
  /** It has failed an integrity check and starts over, with pages that nobody else has. */
  retried = false;

  length: number;
  pending = 0;
  computed = 0;
  /** Tokens that the step being scheduled computes. */
  scheduled = 0;
  /** KV of completed steps, and pages offered to the prefix cache so far. */
  completed = 0;
  publishedPages = 0;
  /** Prompt tokens that the first admission found in the prefix cache; -1: not admitted yet. */
  cachedTokens = -1;
  /** -1 and 0: not live. */
  slot = -1;
  epoch = 0;
  /** Waiting again after a preemption. */
  preempted = false;
  done = false;

  /** `grants` has room for what tokens[prompt + maxTokens] need, as has `maxPages`. */
  constructor(
    handle: number,
    source: GenerateRequest,
    maxTokens: number,
    keys: PrefixKeys,
    maxPages: number,
    account: Account,
    grants: Int32Array,
  ) {
    this.handle = handle;
    this.source = source;
    this.maxTokens = maxTokens;
    this.prompt = source.prompt.length;
    this.tokens = new Int32Array(this.prompt + maxTokens);
    this.tokens.set(source.prompt);
    this.keys = keys;
    this.pages = new Int32Array(maxPages);
    this.account = account;
    this.grants = grants;
    this.length = this.prompt;
  }

  /** Output tokens known to the host. */
  get outputs(): number {
    return this.length - this.prompt;
  }

  /** Tokens to compute before the next one can be sampled: 1 for a sequence that decodes. */
  get gap(): number {
    return this.length + this.pending - this.computed;
  }

  /** True when the tokens in flight already reach maxTokens. */
  get exhausted(): boolean {
    return this.outputs + this.pending >= this.maxTokens;
  }
}
