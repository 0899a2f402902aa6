// Kimi's tokenizer files: `tiktoken.model` (a line per token: base64 bytes, rank) and the added tokens of
// tokenizer_config.json. There is no tokenizer.json and no merges list; ranks decide (moonshotai/Kimi-K2-Instruct).

import { encodePiece, type Ranks } from "./bpe.ts";
import { TokenBytes } from "./bytes.ts";
import { ControlTokens } from "./control.ts";
import {
  type AddedToken,
  readAddedToken,
  type Tokenizer,
  TokenizerFileError,
  tokenName,
} from "./tokenizer.ts";

/** Ids after the base vocabulary that Kimi keeps for special tokens; those not listed are placeholders. */
const RESERVED = 256;

/** Longer runs of white space or of anything else are cut, as Kimi's own tokenizer does. */
const MAX_RUN = 25_000;

const HAN = "\\p{Script=Han}";
const UPPER = `[[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]--${HAN}]`;
const LOWER = `[[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]--${HAN}]`;
const CONTRACTION = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?";
const SPACE = "\\p{White_Space}";

/** Kimi's pre-token pattern, with Rust's `&&[^\p{Han}]` and `\s` in JavaScript's `v` flag spelling. */
const PATTERN = new RegExp(
  [
    `${HAN}+`,
    `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${CONTRACTION}`,
    `[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${CONTRACTION}`,
    "\\p{N}{1,3}",
    ` ?[^${SPACE}\\p{L}\\p{N}]+[\\r\\n]*`,
    `${SPACE}*[\\r\\n]+`,
    `${SPACE}+(?!\\P{White_Space})`,
    `${SPACE}+`,
  ].join("|"),
  "gv",
);

/** Parses `tiktoken.model`: Latin-1 byte strings to ranks. */
export function parseRanks(file: string, name = "tiktoken.model"): Ranks {
  const ranks = new Map<string, number>();
  for (const [i, line] of file.split("\n").entries()) {
    if (line.trim() === "") continue;
    const match = /^([A-Za-z0-9+/]+=*) (\d{1,8})$/.exec(line.trim());
    if (!match) throw new TokenizerFileError(`${name}: line ${i + 1} is not "base64 rank"`);
    ranks.set(Buffer.from(match[1], "base64").toString("latin1"), Number(match[2]));
  }
  for (let byte = 0; byte < 256; byte++) {
    if (!ranks.has(String.fromCharCode(byte)))
      throw new TokenizerFileError(`${name}: byte ${byte} has no rank`);
  }
  return ranks;
}

/** @param config tokenizer_config.json */
export function createTiktoken(ranks: Ranks, config: Record<string, unknown>): Tokenizer {
  const base = ranks.size;
  const listed = (config.added_tokens_decoder ?? {}) as Record<string, unknown>;
  const added: AddedToken[] = [];
  for (let id = base; id < base + RESERVED; id++) {
    const fallback = { content: `<|reserved_token_${id}|>`, special: true };
    added.push(readAddedToken(id, Object.hasOwn(listed, id) ? listed[id] : fallback));
  }
  const bytes: Uint8Array[] = [];
  for (const [token, id] of ranks) bytes[id] = Buffer.from(token, "latin1");
  for (const token of added) if (!token.special) bytes[token.id] = Buffer.from(token.content);
  const bos = added.find(({ content }) => content === tokenName(config.bos_token));
  return {
    size: base + RESERVED,
    control: new ControlTokens(added),
    bytes: new TokenBytes(bytes),
    prefix: config.add_bos_token === true && bos ? [bos.id] : [],
    encodeText: (text) => encode(text, ranks),
  };
}

function encode(text: string, ranks: Ranks): number[] {
  const ids: number[] = [];
  for (const run of cutRuns(text.toWellFormed())) {
    for (const [piece] of run.matchAll(PATTERN)) {
      for (const id of encodePiece(Buffer.from(piece).toString("latin1"), ranks)) ids.push(id);
    }
  }
  return ids;
}

/** Cuts where a run of white space, or of its opposite, reaches MAX_RUN characters. */
function* cutRuns(text: string): Generator<string> {
  let from = 0;
  for (const run of text.matchAll(/\p{White_Space}{25000,}|\P{White_Space}{25000,}/gv)) {
    for (let at = run.index + MAX_RUN; at < run.index + run[0].length; at += MAX_RUN) {
      const low = (text.charCodeAt(at) & 0xfc00) === 0xdc00;
      yield text.slice(from, low ? at - 1 : at);
      from = low ? at - 1 : at;
    }
  }
  yield text.slice(from);
}
