// How the edge signs requests to a node and how a node checks them. WebCrypto only: the same file runs in
// workerd and in Node. Shared by worker/ and server/; imports nothing of ours.

/** A shared secret of edge and node; the text form is `<id>:<secret>`. */
export interface NodeKey {
  /** 1..64 of `A-Z a-z 0-9 . _ -` */
  id: string;
  /** At least 32 printable characters; used as the HMAC key byte by byte. */
  secret: string;
}

/** What a signature covers. */
export interface SignedRequest {
  /** Upper case. */
  method: string;
  /** Path and query as sent: `/v1/models?limit=3`. */
  target: string;
  /** The account the request is made for. */
  account: string;
  /** Empty for GET. */
  body: string | Uint8Array<ArrayBuffer>;
}

export type SignatureFault = "missing" | "malformed" | "unknown_key" | "expired" | "wrong" | "replayed";

export type Verdict =
  | { ok: true; keyId: string; account: string; bodySha256: string }
  | { ok: false; fault: SignatureFault; message: string };

export interface Signer {
  /** Headers to add to the request. */
  sign(request: SignedRequest): Promise<Record<string, string>>;
}

export interface Verifier {
  /**
   * Checks everything that is known before the body is read. The body must then hash to `bodySha256`
   * (see `bodyMatches`); until it does, the request is not authentic.
   */
  check(
    method: string,
    target: string,
    header: (name: string) => string | null | undefined,
  ): Promise<Verdict>;
}

export const SIGNATURE_HEADERS = {
  keyId: "x-edgewise-key-id",
  timestamp: "x-edgewise-timestamp",
  nonce: "x-edgewise-nonce",
  account: "x-edgewise-account",
  bodySha256: "x-edgewise-content-sha256",
  signature: "x-edgewise-signature",
} as const;

/** A request older or newer than this is refused. */
export const SIGNATURE_WINDOW_MS = 60_000;

/** Nonces remembered per generation; only a holder of the key can add one. */
const MAX_NONCES = 1 << 20;
const MIN_SECRET_CHARS = 32;
const KEY_ID = /^[A-Za-z0-9._-]{1,64}$/;
const ACCOUNT = /^[A-Za-z0-9._-]{1,64}$/;
const NONCE = /^[0-9a-f]{32}$/;
const DIGEST = /^[0-9a-f]{64}$/;
const TIMESTAMP = /^[0-9]{1,15}$/;

/** Reads `<id>:<secret>`; undefined when it is not one. */
export function parseNodeKey(text: string): NodeKey | undefined {
  const colon = text.indexOf(":");
  // Without one the cut would make an id of the secret, and ids travel in the clear.
  if (colon < 0) return undefined;
  const key = { id: text.slice(0, colon), secret: text.slice(colon + 1) };
  return isNodeKey(key) ? key : undefined;
}

export function formatNodeKey(key: NodeKey): string {
  return `${key.id}:${key.secret}`;
}

/** A new random key with a 256-bit secret. */
export function generateNodeKey(id: string): NodeKey {
  return { id, secret: hex(crypto.getRandomValues(new Uint8Array(32))) };
}

export async function createSigner(key: NodeKey, clock: () => number = Date.now): Promise<Signer> {
  const secret = await importSecret(key);
  return {
    async sign({ method, target, account, body }) {
      const timestamp = String(clock());
      const nonce = hex(crypto.getRandomValues(new Uint8Array(16)));
      const bodySha256 = await sha256Hex(body);
      const text = signedText(method, target, bodySha256, timestamp, nonce, key.id, account);
      const signature = await crypto.subtle.sign("HMAC", secret, encode(text));
      return {
        [SIGNATURE_HEADERS.keyId]: key.id,
        [SIGNATURE_HEADERS.timestamp]: timestamp,
        [SIGNATURE_HEADERS.nonce]: nonce,
        [SIGNATURE_HEADERS.account]: account,
        [SIGNATURE_HEADERS.bodySha256]: bodySha256,
        [SIGNATURE_HEADERS.signature]: hex(new Uint8Array(signature)),
      };
    },
  };
}

/** Accepts any of `keys`, so that keys rotate without a gap. Nonces live in this process only. */
export async function createVerifier(keys: NodeKey[], clock: () => number = Date.now): Promise<Verifier> {
  const secrets = new Map<string, Awaited<ReturnType<typeof importSecret>>>();
  for (const key of keys) secrets.set(key.id, await importSecret(key));
  const nonces = new NonceMemory();

  return {
    async check(method, target, header) {
      const keyId = header(SIGNATURE_HEADERS.keyId);
      const timestamp = header(SIGNATURE_HEADERS.timestamp);
      const nonce = header(SIGNATURE_HEADERS.nonce);
      const account = header(SIGNATURE_HEADERS.account);
      const bodySha256 = header(SIGNATURE_HEADERS.bodySha256);
      const signature = header(SIGNATURE_HEADERS.signature);
      if (!keyId || !timestamp || !nonce || !account || !bodySha256 || !signature) {
        return refuse("missing", "the request is not signed");
      }
      const wellFormed =
        TIMESTAMP.test(timestamp) &&
        NONCE.test(nonce) &&
        ACCOUNT.test(account) &&
        DIGEST.test(bodySha256) &&
        DIGEST.test(signature);
      if (!wellFormed) return refuse("malformed", "a signature header is malformed");
      const secret = secrets.get(keyId);
      if (!secret) return refuse("unknown_key", "the signing key is not known here");
      const now = clock();
      if (Math.abs(now - Number(timestamp)) > SIGNATURE_WINDOW_MS) {
        return refuse("expired", "the signature is outside its time window; check both clocks");
      }
      const text = signedText(method, target, bodySha256, timestamp, nonce, keyId, account);
      if (!(await crypto.subtle.verify("HMAC", secret, unhex(signature), encode(text)))) {
        return refuse("wrong", "the signature does not match the request");
      }
      if (!nonces.add(`${keyId}:${nonce}`, now))
        return refuse("replayed", "the request was already received");
      return { ok: true, keyId, account, bodySha256 };
    },
  };
}

/** True when `body` is the one that was signed. */
export async function bodyMatches(
  bodySha256: string,
  body: string | Uint8Array<ArrayBuffer>,
): Promise<boolean> {
  return (await sha256Hex(body)) === bodySha256;
}

export async function sha256Hex(body: string | Uint8Array<ArrayBuffer>): Promise<string> {
  const bytes = typeof body === "string" ? encode(body) : body;
  return hex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));
}

/**
 * Remembers nonces long enough that none is accepted twice. A timestamp may lie one window ahead, so a request
 * stays acceptable for two windows after it arrived; two generations of that length cover it.
 */
class NonceMemory {
  private current = new Set<string>();
  private previous = new Set<string>();
  private turnAt = 0;

  /** False when the nonce is known or there is no room to remember it. */
  add(nonce: string, now: number): boolean {
    if (now >= this.turnAt) {
      const idle = now >= this.turnAt + 2 * SIGNATURE_WINDOW_MS;
      this.previous = idle ? new Set() : this.current;
      this.current = new Set();
      this.turnAt = now + 2 * SIGNATURE_WINDOW_MS;
    }
    if (this.current.has(nonce) || this.previous.has(nonce) || this.current.size >= MAX_NONCES) return false;
    this.current.add(nonce);
    return true;
  }
}

function signedText(
  method: string,
  target: string,
  bodySha256: string,
  timestamp: string,
  nonce: string,
  keyId: string,
  account: string,
): string {
  return ["v1", method, target, bodySha256, timestamp, nonce, keyId, account].join("\n");
}

function importSecret(key: NodeKey) {
  if (!isNodeKey(key)) {
    throw new TypeError(
      `a node key is <id>:<secret> with a secret of ${MIN_SECRET_CHARS} or more characters`,
    );
  }
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  return crypto.subtle.importKey("raw", encode(key.secret), algorithm, false, ["sign", "verify"]);
}

function isNodeKey(key: NodeKey): boolean {
  return KEY_ID.test(key.id) && key.secret.length >= MIN_SECRET_CHARS && /^[!-~]+$/.test(key.secret);
}

function refuse(fault: SignatureFault, message: string): Verdict {
  return { ok: false, fault, message };
}

function encode(text: string): Uint8Array<ArrayBuffer> {
  // The declared buffer type differs between Node and workerd; the encoder never makes a shared one.
  return new TextEncoder().encode(text) as Uint8Array<ArrayBuffer>;
}

function hex(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

function unhex(text: string): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(text.length / 2);
  for (let i = 0; i < bytes.length; i++) bytes[i] = Number.parseInt(text.slice(2 * i, 2 * i + 2), 16);
  return bytes;
}
