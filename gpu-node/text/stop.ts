// Stop strings in a text that arrives in pieces.

export interface StopStep {
  /** Text that may be shown now. */
  text: string;
  /** The stop string that ended the text; nothing follows. */
  stop?: string;
}

/**
 * The stop string that completes first wins; of those that complete together the longest, so that no part of a stop is
 * shown. Only what may still become a stop is held back:
 *
 *     stop "END", arrived "...lo EN"   shown "...lo ", held "EN"
 *
 * Text arrives in whole code points and stops are well formed, so neither a match nor a hold splits a surrogate pair.
 */
export class StopMatcher {
  private readonly stops: string[];
  private held = "";

  constructor(stops: string[]) {
    this.stops = stops;
  }

  push(text: string): StopStep {
    if (this.stops.length === 0) return { text };
    const window = this.held + text;
    let start = window.length;
    let end = Infinity;
    let stop: string | undefined;
    for (const candidate of this.stops) {
      const at = window.indexOf(candidate);
      if (at < 0) continue;
      const completes = at + candidate.length;
      if (completes < end || (completes === end && at < start))
        [start, end, stop] = [at, completes, candidate];
    }
    if (stop !== undefined) {
      this.held = "";
      return { text: window.slice(0, start), stop };
    }
    const keep = this.longestPrefixAtEnd(window);
    this.held = window.slice(window.length - keep);
    return { text: window.slice(0, window.length - keep) };
  }

  /** What was held back when the sequence ended some other way. */
  flush(): string {
    const { held } = this;
    this.held = "";
    return held;
  }

  /** Length of the longest end of `text` that is a proper beginning of a stop. */
  private longestPrefixAtEnd(text: string): number {
    let longest = 0;
    for (const stop of this.stops) {
      for (let length = Math.min(stop.length - 1, text.length); length > longest; length--) {
        if (text.endsWith(stop.slice(0, length))) longest = length;
      }
    }
    return longest;
  }
}
