// What the rest of text/ needs of a tokenizer, whichever files it was read from.

import type { TokenBytes } from "./bytes.ts";
import type { ControlTokens } from "./control.ts";

/** An entry of `added_tokens` (tokenizer.json) or `added_tokens_decoder` (tokenizer_config.json). */
export interface AddedToken {
  id: number;
  content: string;
  /** Never part of visible text. Tool markers and think tags are often not special: they are structure by id. */
  special: boolean;
  /** The token swallows white space on that side. */
  lstrip: boolean;
  rstrip: boolean;
}

export interface Tokenizer {
  /** All ids are below. */
  readonly size: number;
  readonly control: ControlTokens;
  /** Bytes of every id; none for special tokens and for ids that do not exist. */
  readonly bytes: TokenBytes;
  /** What a plain prompt (no chat template) starts with: the BOS token where the model wants one. */
  readonly prefix: number[];
  /** Text to ids. Control tokens spelled in the text come out as ordinary text, never as their ids. */
  encodeText(text: string): number[];
}

/** A tokenizer file that is absent or that cannot be used; `message` names the file. */
export class TokenizerFileError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "TokenizerFileError";
  }
}

/** Reads one added token of either file format; a bare string is legal in some configs. */
export function readAddedToken(id: number, value: unknown): AddedToken {
  const token = (
    typeof value === "string" ? { content: value, special: true } : value
  ) as Partial<AddedToken>;
  return {
    id,
    content: String(token.content ?? ""),
    special: token.special === true,
    lstrip: token.lstrip === true,
    rstrip: token.rstrip === true,
  };
}

/** `bos_token` and the like in tokenizer_config.json: text, an added token, or nothing (""). */
export function tokenName(value: unknown): string {
  if (typeof value === "string") return value;
  return typeof value === "object" && value !== null
    ? String((value as { content?: unknown }).content ?? "")
    : "";
}
