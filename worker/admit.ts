// Whether a request may come in at all: the account's requests in flight, then the size of the body as it arrives.

import { ApiError } from "../gpu-node/contract/errors.ts";
import { parseJsonObject, readBody } from "../gpu-node/contract/json.ts";
import { LIMITS } from "../gpu-node/contract/limits.ts";
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
        if (leases.count(now) === 0) this.accounts.delete(account);
      },
    };
  }
}

/**
 * The body as a JSON object. Any content type is taken: `curl -d` without a header is how people try an API.
 * @throws ApiError body_too_large or invalid_json
 */
export async function readJson(request: Request): Promise<Record<string, unknown>> {
  return parseJsonObject(await readBody(request, LIMITS.bodyBytes, EDGE.drainBytes));
}
