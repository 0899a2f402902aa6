// A queue between the sequences of a request and the writer of its response.

import type { ApiError } from "../contract/errors.ts";

/** Many writers, one reader. Ends once: by `end`, or by the first `fail`. */
export class Channel<T> {
  private readonly limit: number;
  private items: T[] = [];
  private wake: (() => void) | undefined;
  private ended = false;
  private error: ApiError | undefined;

  /** @param limit items a slow reader may leave unread */
  constructor(limit: number) {
    this.limit = limit;
  }

  /** False when the reader is too far behind: the item is lost and the writer must `fail`. */
  push(item: T): boolean {
    if (this.ended) return true;
    if (this.items.length >= this.limit) return false;
    this.items.push(item);
    this.wake?.();
    return true;
  }

  end(): void {
    this.ended = true;
    this.wake?.();
  }

  fail(error: ApiError): void {
    if (this.ended) return;
    this.error = error;
    this.end();
  }

  /**
   * Everything that has arrived, waiting for at least one item; undefined at the end.
   * @throws ApiError given to `fail`, after the items before it
   */
  async take(): Promise<T[] | undefined> {
    while (this.items.length === 0 && !this.ended) {
      await new Promise<void>((resolve) => {
        this.wake = resolve;
      });
      this.wake = undefined;
    }
    if (this.items.length > 0) {
      const { items } = this;
      this.items = [];
      return items;
    }
    if (this.error) throw this.error;
    return undefined;
  }
}
