// What the server asks of the engine and what it hears back. Shared by server/ and engine/; imports nothing of ours.

/** Sampling of one sequence; every field is present and already validated. */
export interface SamplingParams {
  /** 0 = greedy */
  temperature: number;
  /** 0 = off */
  topK: number;
  /** 1 = off */
  topP: number;
  /** 0 = off */
  minP: number;
  /** 1 = off; over prompt and output */
  repetitionPenalty: number;
  /** 0 = off; over output */
  presencePenalty: number;
  frequencyPenalty: number;
  /** 64-bit seed as two int32 halves */
  seedLow: number;
  seedHigh: number;
  /** token id -> bias; at most MAX_LOGIT_BIAS entries */
  logitBias: [number, number][];
  /** alternatives wanted per token, 0..20; -1 = no log probabilities at all */
  topLogprobs: number;
}

export const MAX_LOGIT_BIAS = 300;
export const MAX_TOP_LOGPROBS = 20;

/** One sequence to generate. `n` choices are n of these. */
export interface GenerateRequest {
  /** [prompt_tokens] at least one */
  prompt: Int32Array;
  sampling: SamplingParams;
  maxTokens: number;
  /** Tokens that end the sequence; they are reported but belong to no text. */
  stopTokens: number[];
  /** Stop tokens are ignored until so many tokens came out. */
  minTokens: number;
  /** Separates prefix caches: the account. */
  salt: string;
  /** Label for logs only. */
  label: string;
}

export interface TokenLogprobs {
  logprob: number;
  /** [id, logprob], most likely first */
  top: [number, number][];
}

export type FinishReason = "stop" | "length" | "abort";

export interface Usage {
  promptTokens: number;
  completionTokens: number;
  cachedTokens: number;
}

/** Events of one request in order: any number of `tokens`, then exactly one `finish` or `error`. */
export type EngineEvent =
  | { type: "tokens"; tokens: number[]; logprobs?: TokenLogprobs[] }
  | { type: "finish"; reason: FinishReason; usage: Usage }
  | { type: "error"; code: EngineErrorCode; message: string; retryable: boolean };

export type EngineErrorCode =
  | "prompt_too_long"
  | "queue_full"
  | "engine_failed"
  | "draining"
  | "kv_integrity"
  | "invalid_request";

export interface EngineStatus {
  state: "loading" | "ready" | "draining" | "failed";
  /** Loading progress, 0..1. */
  progress: number;
  /** Advanced by the loop; ready means it moved recently. */
  heartbeat: number;
  /** Milliseconds since the heartbeat moved. */
  heartbeatAge: number;
  running: number;
  waiting: number;
  pagesTotal: number;
  pagesFree: number;
  pagesCached: number;
  pagesOwned: number;
  slotsFree: number;
  /** Whether pages are checked before they are read, and whether they can be trusted; absent: off. */
  integrity?: "off" | "ok" | "alarm";
  /** Milliseconds since a self-test last proved that the alarm works; null: never. */
  selfTestAge?: number | null;
  pagesQuarantined?: number;
  /** Cumulative counters by name, for /metrics. */
  counters: Record<string, number>;
}

/** The main thread's handle of an engine. */
export interface Engine {
  /** Longest sequence (prompt and output) in tokens. */
  readonly maxModelLen: number;
  readonly vocabSize: number;
  /** Aborting `signal` frees the request within two steps; the iterator then ends with finish "abort". */
  generate(request: GenerateRequest, signal: AbortSignal): AsyncIterable<EngineEvent>;
  status(): EngineStatus;
  /** Takes no new work; resolves when all is finished, or after `ms` with the rest ended by a retryable error. */
  drain(ms: number): Promise<void>;
  close(): Promise<void>;
}
