// Counting what is in flight. A lease ends when it is released or when it is too old, so that a request whose end was
// never seen (an isolate cut off, a client gone at the wrong moment) cannot hold its place for ever.

import { EDGE } from "./limits.ts";

export interface Lease {
  /** May be called more than once. */
  release(): void;
}

export class Leases {
  private readonly expiries = new Map<number, number>();
  private next = 0;

  take(now: number): Lease {
    const id = this.next++;
    this.expiries.set(id, now + EDGE.leaseMs);
    return { release: () => void this.expiries.delete(id) };
  }

  /** Leases that are neither released nor expired at `now` (milliseconds). */
  count(now: number): number {
    // Insertion order is expiry order: stop at the first that still lives.
    for (const [id, expiry] of this.expiries) {
      if (expiry > now) break;
      this.expiries.delete(id);
    }
    return this.expiries.size;
  }
}
