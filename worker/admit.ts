// Whether a request may come in at all: how many its account has in flight.

import { ApiError } from "../gpu-node/contract/errors.ts";
import { type Lease, Leases } from "./leases.ts";
import { EDGE } from "./limits.ts";

/** Requests in flight by account, as this isolate sees them. */
export class Admission {
  private readonly accounts = new Map<string, Leases>();

  /** @throws ApiError rate_limit_exceeded */
  enter(account: string, now: number): Lease {
    const leases = this.accounts.get(account) ?? new Leases();
    this.accounts.set(account, leases);
    if (leases.count(now) >= EDGE.inFlightPerAccount) {
      throw new ApiError(
        "rate_limit_exceeded",
        `The account has ${EDGE.inFlightPerAccount} requests in flight; wait for one to end.`,
        { retryAfter: 1 },
      );
    }
    const lease = leases.take(now);
    return {
      release: () => {
        lease.release();
        const current = this.accounts.get(account) === leases;
        if (current && leases.count(now) === 0) this.accounts.delete(account);
      },
    };
  }
}
