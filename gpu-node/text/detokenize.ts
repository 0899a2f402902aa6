// Token bytes to text, streaming: a UTF-8 sequence split over tokens comes out whole.

/** One per sequence and channel. Invalid bytes become U+FFFD, as every UTF-8 decoder does. */
export class Detokenizer {
  private readonly decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  /** Text completed by these bytes, possibly none. */
  push(bytes: Uint8Array): string {
    return bytes.length === 0 ? "" : this.decoder.decode(bytes, { stream: true });
  }

  /** What is left at the end: U+FFFD for a sequence that never completed. */
  flush(): string {
    return this.decoder.decode();
  }
}
