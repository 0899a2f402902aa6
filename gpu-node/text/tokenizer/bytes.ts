// The bytes of every token id, in one buffer, and the GPT-2 alphabet that byte-level vocabularies are written in.

/** `[size]` byte strings, packed. */
export class TokenBytes {
  /** Bytes of the longest token: a text of n bytes needs at least n / longest tokens. */
  readonly longest: number;
  private readonly data: Uint8Array;
  private readonly starts: Uint32Array;

  /** @param tokens index = id; a hole or an empty entry has no bytes */
  constructor(tokens: (Uint8Array | undefined)[]) {
    let total = 0;
    let longest = 1;
    for (const token of tokens) {
      total += token?.length ?? 0;
      longest = Math.max(longest, token?.length ?? 0);
    }
    this.longest = longest;
    this.data = new Uint8Array(total);
    this.starts = new Uint32Array(tokens.length + 1);
    let at = 0;
    for (let id = 0; id < tokens.length; id++) {
      this.starts[id] = at;
      const token = tokens[id];
      if (token) {
        this.data.set(token, at);
        at += token.length;
      }
    }
    this.starts[tokens.length] = at;
  }

  /** A view, not a copy. Empty for ids out of range: a padded vocabulary may yield them. */
  of(id: number): Uint8Array {
    if (!(id >= 0 && id < this.starts.length - 1)) return this.data.subarray(0, 0);
    return this.data.subarray(this.starts[id], this.starts[id + 1]);
  }
}

/**
 * GPT-2's bijection between bytes and printable characters (openai/gpt-2 `bytes_to_unicode`): printable Latin-1 maps
 * to itself, the other 68 bytes to U+0100 and up in order.
 */
const BYTE_OF_CHAR: ReadonlyMap<string, number> = (() => {
  const map = new Map<string, number>();
  let next = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte !== 0xad);
    map.set(String.fromCharCode(printable ? byte : next++), byte);
  }
  return map;
})();

/** Bytes of a byte-level vocabulary entry; undefined when a character is outside the alphabet. */
export function byteLevelBytes(entry: string): Uint8Array | undefined {
  const out = new Uint8Array(entry.length);
  for (let i = 0; i < entry.length; i++) {
    const byte = BYTE_OF_CHAR.get(entry[i]);
    if (byte === undefined) return undefined;
    out[i] = byte;
  }
  return out;
}
