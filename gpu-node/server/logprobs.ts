// Log probabilities in the two shapes of the OpenAI API.

import type { TokenLogprobs } from "../contract/engine.ts";
import type { Tokenizer } from "../text/tokenizer/tokenizer.ts";

export interface TokenLogprob {
  token: string;
  logprob: number;
  bytes: number[];
}

/** An item of chat's `logprobs.content`. */
export interface LogprobEntry extends TokenLogprob {
  top_logprobs: TokenLogprob[];
}

/** OpenAI's stand-in for minus infinity, which JSON cannot hold. */
const FLOOR = -9999;

/** Undefined for special tokens, which belong to no text. */
export function logprobEntry(
  tokenizer: Tokenizer,
  id: number,
  found: TokenLogprobs,
): LogprobEntry | undefined {
  if (tokenizer.bytes.of(id).length === 0) return undefined;
  const top = found.top.map(([other, logprob]) => describe(tokenizer, other, logprob));
  return { ...describe(tokenizer, id, found.logprob), top_logprobs: top };
}

/** The shape of /v1/completions; `offset` is the number of characters before the first token. */
export function legacyLogprobs(entries: LogprobEntry[], offset: number) {
  const offsets: number[] = [];
  for (const { token } of entries) {
    offsets.push(offset);
    offset += token.length;
  }
  return {
    tokens: entries.map(({ token }) => token),
    token_logprobs: entries.map(({ logprob }) => logprob),
    top_logprobs: entries.map(({ top_logprobs }) =>
      Object.fromEntries(top_logprobs.map(({ token, logprob }) => [token, logprob])),
    ),
    text_offset: offsets,
  };
}

function describe(tokenizer: Tokenizer, id: number, logprob: number): TokenLogprob {
  const special = tokenizer.control.byId.get(id)?.content;
  const bytes = special === undefined ? tokenizer.bytes.of(id) : Buffer.from(special);
  return {
    token: new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes),
    logprob: Math.max(FLOOR, logprob),
    bytes: [...bytes],
  };
}
