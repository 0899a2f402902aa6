// Who is calling: the API key of a request, as an account.

import { type ApiKeyRecord, importPepper, parseApiKey } from "../gpu-node/contract/api-key.ts";
import { ApiError } from "../gpu-node/contract/errors.ts";

export interface Caller {
  keyId: string;
  account: string;
}

export interface KeyRing {
  /**
   * The account behind an `Authorization` header.
   * @throws ApiError missing_api_key, invalid_api_key or expired_api_key; unknown, wrong and revoked read the same
   */
  authenticate(authorization: string | null | undefined, now: number): Promise<Caller>;
}

const BEARER = /^Bearer +(\S{1,256})$/i;
/** Compared against when the id is unknown, so that an unknown id costs what a known one costs. */
const NO_DIGEST = new Uint8Array(32);

export async function createKeyRing(records: ApiKeyRecord[], pepper: string): Promise<KeyRing> {
  const byId = new Map(records.map((record) => [record.id, { record, digest: bytes(record.digest) }]));
  const hmac = records.length > 0 ? await importPepper(pepper) : undefined;

  return {
    async authenticate(authorization, now) {
      if (!authorization) {
        throw new ApiError(
          "missing_api_key",
          "Authentication is required: send Authorization: Bearer ew_...",
        );
      }
      const invalid = () => new ApiError("invalid_api_key", "The API key is not valid.");
      const token = BEARER.exec(authorization.trim())?.[1];
      const key = token === undefined ? undefined : parseApiKey(token);
      if (!key || !hmac) throw invalid();
      const known = byId.get(key.id);
      // WebCrypto compares the two 32-byte digests in constant time.
      const secret = new TextEncoder().encode(key.secret);
      const matches = await crypto.subtle.verify("HMAC", hmac, known?.digest ?? NO_DIGEST, secret);
      if (!known || !matches || known.record.status === "revoked") throw invalid();
      const { id, account, expires } = known.record;
      if (expires !== undefined && now >= Date.parse(expires)) {
        throw new ApiError("expired_api_key", "The API key has expired.");
      }
      return { keyId: id, account };
    },
  };
}

/**
 * Holds a path to the caller's own account.
 * @throws ApiError account_mismatch
 */
export function requireAccount(caller: Caller, account: string): void {
  if (caller.account !== account) {
    throw new ApiError("account_mismatch", "The API key does not belong to this account.", {
      param: "account_id",
    });
  }
}

function bytes(hex: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}
