// Events of one request on their way from the engine's messages to whoever iterates.
import type { EngineEvent } from "../contract/engine.ts";

/**
 * An unbounded queue, bounded by maxTokens of its request: a slow reader holds up nobody. Tokens that pile up are
 * merged into one event. Leaving the iteration early calls `onLeave`.
 */
export class EventStream implements AsyncIterableIterator<EngineEvent> {
  readonly #queue: EngineEvent[] = [];
  readonly #onLeave: () => void;
  #waiting: ((result: IteratorResult<EngineEvent>) => void) | null = null;
  #ended = false;

  constructor(onLeave: () => void) {
    this.#onLeave = onLeave;
  }

  /** True once the finish or error is in the queue. */
  get ended(): boolean {
    return this.#ended;
  }

  push(event: EngineEvent): void {
    if (this.#ended) return;
    this.#ended = event.type !== "tokens";
    if (this.#waiting) {
      const resolve = this.#waiting;
      this.#waiting = null;
      resolve({ value: event, done: false });
      return;
    }
    const last = this.#queue.at(-1);
    if (event.type === "tokens" && last?.type === "tokens") {
      last.tokens.push(...event.tokens);
      if (event.logprobs) last.logprobs = [...(last.logprobs ?? []), ...event.logprobs];
    } else this.#queue.push(event);
  }

  next(): Promise<IteratorResult<EngineEvent>> {
    const event = this.#queue.shift();
    if (event) return Promise.resolve({ value: event, done: false });
    if (this.#ended) return Promise.resolve({ value: undefined, done: true });
    return new Promise((resolve) => {
      this.#waiting = resolve;
    });
  }

  return(): Promise<IteratorResult<EngineEvent>> {
    if (!this.#ended) this.#onLeave();
    this.#ended = true;
    this.#queue.length = 0;
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
