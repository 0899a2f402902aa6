// API keys: `ew_<id>_<secret>`. Only an HMAC of the secret is stored; the id finds the record. WebCrypto only, so that
// worker/ checks what local/ issues. Imports nothing of ours.

export interface ApiKey {
  /** 4..32 letters and digits; public, it may stand in a log. */
  id: string;
  /** 32..128 of `A-Z a-z 0-9 -`. */
  secret: string;
}

/** What the edge stores of a key. */
export interface ApiKeyRecord {
  id: string;
  /** The account that the key belongs to; a path naming another account is refused. */
  account: string;
  /** Hex HMAC-SHA256 of the secret under the edge's pepper. */
  digest: string;
  status?: "active" | "revoked";
  /** ISO 8601 time from which the key is refused. */
  expires?: string;
}

const PATTERN = /^ew_([A-Za-z0-9]{4,32})_([A-Za-z0-9-]{32,128})$/;

/** Reads `ew_<id>_<secret>`; undefined when it is not one. */
export function parseApiKey(text: string): ApiKey | undefined {
  const match = PATTERN.exec(text);
  return match ? { id: match[1], secret: match[2] } : undefined;
}

export function formatApiKey(key: ApiKey): string {
  return `ew_${key.id}_${key.secret}`;
}

/** A new key with a 256-bit secret. */
export function generateApiKey(id: string): ApiKey {
  return { id, secret: hex(crypto.getRandomValues(new Uint8Array(32))) };
}

/** The HMAC key that digests are made with. */
export function importPepper(pepper: string) {
  const raw = new TextEncoder().encode(pepper);
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  return crypto.subtle.importKey("raw", raw, algorithm, false, ["sign", "verify"]);
}

export async function digestSecret(pepper: string, secret: string): Promise<string> {
  const key = await importPepper(pepper);
  return hex(new Uint8Array(await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(secret))));
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
