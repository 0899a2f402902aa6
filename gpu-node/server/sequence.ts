// One sequence of a request: engine events in, pieces of the answer out. No I/O and no clock.

import type { EngineEvent, Usage } from "../contract/engine.ts";
import { ApiError, type ErrorCode } from "../contract/errors.ts";
import type { OutputParser, Piece } from "../text/parse/output.ts";
import { StopMatcher } from "../text/stop.ts";
import type { Tokenizer } from "../text/tokenizer/tokenizer.ts";
import { type LogprobEntry, logprobEntry } from "./logprobs.ts";

export type SequenceFinish = "stop" | "length" | "tool_calls";

export interface SequenceUsage extends Usage {
  reasoningTokens: number;
}

export type SequenceEvent =
  | { type: "pieces"; pieces: Piece[]; logprobs: LogprobEntry[] }
  | { type: "end"; finish: SequenceFinish; usage: SequenceUsage };

export interface SequenceOptions {
  tokenizer: Tokenizer;
  parser: OutputParser;
  /** Tokens that end the sequence: counted, never shown. */
  stopTokens: number[];
  stops: string[];
  /** Stop strings are not looked for until so many tokens came out. */
  minTokens: number;
}

/** Engine error codes as ours. `prompt_too_long` is the client's, the others the server's. */
const ENGINE_ERRORS: Record<string, ErrorCode> = {
  prompt_too_long: "context_length_exceeded",
  queue_full: "queue_full",
  engine_failed: "engine_failed",
  draining: "draining",
  kv_integrity: "kv_integrity",
  invalid_request: "invalid_value",
};

export class Sequence {
  private readonly options: SequenceOptions;
  private readonly matcher: StopMatcher;
  private tokens = 0;
  private reasoningTokens = 0;
  private stoppedByText = false;
  private done = false;
  /** Characters of content that went into the matcher, and that came out. */
  private charactersIn = 0;
  private charactersOut = 0;
  /** Log probabilities of tokens whose text is still held back, with the offset where that text begins. */
  private pending: { entry: LogprobEntry; start: number }[] = [];

  constructor(options: SequenceOptions) {
    this.options = options;
    this.matcher = new StopMatcher(options.stops);
  }

  /** A stop string has been completed: the engine should abort; its remaining tokens are dropped here. */
  get stopped(): boolean {
    return this.stoppedByText;
  }

  /** The end event has been given out. */
  get ended(): boolean {
    return this.done;
  }

  /** @throws ApiError for an error event, and for an abort that nobody here asked for */
  accept(event: EngineEvent): SequenceEvent[] {
    switch (event.type) {
      case "tokens":
        return this.stoppedByText ? [] : this.acceptTokens(event);
      case "finish":
        return this.finish(event.reason, event.usage);
      case "error":
        throw engineError(event);
    }
  }

  private acceptTokens({ tokens, logprobs }: Extract<EngineEvent, { type: "tokens" }>): SequenceEvent[] {
    const pieces: Piece[] = [];
    for (let i = 0; i < tokens.length && !this.stoppedByText; i++) {
      this.tokens++;
      if (this.options.stopTokens.includes(tokens[i])) continue;
      if (this.options.parser.inReasoning) this.reasoningTokens++;
      const start = this.charactersIn;
      this.show(this.options.parser.push(tokens[i]), pieces);
      const entry = logprobs && logprobEntry(this.options.tokenizer, tokens[i], logprobs[i]);
      if (entry) this.pending.push({ entry, start });
    }
    return this.event(pieces, this.takeLogprobs());
  }

  private finish(reason: "stop" | "length" | "abort", usage: Usage): SequenceEvent[] {
    if (reason === "abort" && !this.stoppedByText) {
      throw new ApiError("engine_failed", "The engine ended the request.");
    }
    const pieces: Piece[] = [];
    if (!this.stoppedByText) {
      this.show(this.options.parser.finish(), pieces);
      const held = this.stoppedByText ? "" : this.matcher.flush();
      if (held !== "") pieces.push({ kind: "content", text: held });
      this.charactersOut += held.length;
    }
    const logprobs = this.stoppedByText ? this.takeLogprobs() : this.takeLogprobs(Infinity);
    const called = this.options.parser.toolCalls > 0;
    const finish = reason === "length" && !this.stoppedByText ? "length" : called ? "tool_calls" : "stop";
    this.done = true;
    const counted = { ...usage, completionTokens: this.tokens, reasoningTokens: this.reasoningTokens };
    return [...this.event(pieces, logprobs), { type: "end", finish, usage: counted }];
  }

  /** Content passes the stop matcher; everything else is shown as it comes. */
  private show(from: Piece[], pieces: Piece[]): void {
    for (const piece of from) {
      if (this.stoppedByText) return;
      if (piece.kind !== "content" || this.tokens < this.options.minTokens) {
        pieces.push(piece);
        continue;
      }
      this.charactersIn += piece.text.length;
      const { text, stop } = this.matcher.push(piece.text);
      this.charactersOut += text.length;
      if (text !== "") pieces.push({ kind: "content", text });
      if (stop !== undefined) this.stoppedByText = true;
    }
  }

  /** Those whose text has begun to be shown; a token that lies wholly in a stop string is never reported. */
  private takeLogprobs(shown = this.charactersOut): LogprobEntry[] {
    const caughtUp = shown === this.charactersIn && !this.stoppedByText;
    let count = 0;
    while (count < this.pending.length && (caughtUp || this.pending[count].start < shown)) count++;
    return this.pending.splice(0, count).map(({ entry }) => entry);
  }

  private event(pieces: Piece[], logprobs: LogprobEntry[]): SequenceEvent[] {
    return pieces.length + logprobs.length > 0 ? [{ type: "pieces", pieces, logprobs }] : [];
  }
}

function engineError({ code, message, retryable }: Extract<EngineEvent, { type: "error" }>): ApiError {
  // The reason of a crash is for the log, not for clients.
  const shown = code === "engine_failed" ? "The engine failed." : message;
  const retryAfter = code === "queue_full" ? 1 : undefined;
  return new ApiError(ENGINE_ERRORS[code] ?? "internal_error", shown, { retryable, retryAfter });
}
