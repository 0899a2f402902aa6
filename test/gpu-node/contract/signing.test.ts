import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bodyMatches,
  createSigner,
  createVerifier,
  formatNodeKey,
  generateNodeKey,
  parseNodeKey,
  SIGNATURE_HEADERS,
  SIGNATURE_WINDOW_MS,
} from "../../../gpu-node/contract/signing.ts";

const START = 1_780_000_000_000;
const request = { method: "POST", target: "/v1/chat/completions?a=1", account: "acct", body: '{"x":1}' };

async function pair() {
  const key = generateNodeKey("k1");
  const time = { now: START };
  const signer = await createSigner(key, () => time.now);
  const verifier = await createVerifier([key], () => time.now);
  const check = (headers: Record<string, string>, method = request.method, target = request.target) =>
    verifier.check(method, target, (name) => headers[name]);
  return { key, time, signer, check };
}

const faultOf = (verdict: { ok: boolean; fault?: string }) => (verdict.ok ? "none" : verdict.fault);

test("a signed request is accepted with its account, and its body is bound by the digest", async () => {
  const { signer, check } = await pair();
  const verdict = await check(await signer.sign(request));
  assert.ok(verdict.ok);
  assert.equal(verdict.account, "acct");
  assert.equal(await bodyMatches(verdict.bodySha256, request.body), true);
  assert.equal(await bodyMatches(verdict.bodySha256, '{"x":2}'), false);
});

test("a request is accepted once", async () => {
  const { signer, check, time } = await pair();
  const headers = await signer.sign(request);
  assert.ok((await check(headers)).ok);
  assert.equal(faultOf(await check(headers)), "replayed");
  time.now += SIGNATURE_WINDOW_MS;
  assert.equal(faultOf(await check(headers)), "replayed");
});

test("a nonce of a timestamp one window ahead is remembered until it expires", async () => {
  const { key, check, time } = await pair();
  const ahead = await createSigner(key, () => START + SIGNATURE_WINDOW_MS);
  const headers = await ahead.sign(request);
  assert.ok((await check(headers)).ok);
  for (let age = 0; age <= 2 * SIGNATURE_WINDOW_MS; age += SIGNATURE_WINDOW_MS / 4) {
    time.now = START + age;
    assert.equal(faultOf(await check(headers)), "replayed", `age ${age}`);
  }
  time.now = START + 2 * SIGNATURE_WINDOW_MS + 1;
  assert.equal(faultOf(await check(headers)), "expired");
});

test("method, target and every signed header are bound by the signature", async () => {
  const { signer, check } = await pair();
  const headers = await signer.sign(request);
  assert.equal(faultOf(await check(headers, "GET")), "wrong");
  assert.equal(faultOf(await check(headers, "POST", "/v1/completions")), "wrong");
  const other: Record<string, string> = {
    [SIGNATURE_HEADERS.timestamp]: String(START + 1),
    [SIGNATURE_HEADERS.nonce]: "0".repeat(32),
    [SIGNATURE_HEADERS.account]: "acct2",
    [SIGNATURE_HEADERS.bodySha256]: "0".repeat(64),
    [SIGNATURE_HEADERS.signature]: "0".repeat(64),
  };
  for (const [name, value] of Object.entries(other)) {
    assert.equal(faultOf(await check({ ...headers, [name]: value })), "wrong", name);
  }
  assert.ok((await check(headers)).ok, "a refused forgery must not use up the nonce");
});

test("missing, malformed, unknown and expired are told apart", async () => {
  const { signer, check, time } = await pair();
  const headers = await signer.sign(request);
  for (const name of Object.values(SIGNATURE_HEADERS)) {
    const { [name]: _, ...rest } = headers;
    assert.equal(faultOf(await check(rest)), "missing", name);
  }
  assert.equal(faultOf(await check({ ...headers, [SIGNATURE_HEADERS.nonce]: "zz" })), "malformed");
  assert.equal(faultOf(await check({ ...headers, [SIGNATURE_HEADERS.account]: "a\nb" })), "malformed");
  assert.equal(faultOf(await check({ ...headers, [SIGNATURE_HEADERS.keyId]: "k2" })), "unknown_key");
  time.now += SIGNATURE_WINDOW_MS + 1;
  assert.equal(faultOf(await check(headers)), "expired");
});

test("a node key survives its text form and short secrets are refused", async () => {
  const key = generateNodeKey("edge-1");
  assert.deepEqual(parseNodeKey(formatNodeKey(key)), key);
  for (const bad of [
    "",
    "id",
    key.secret,
    "id:short",
    `:${key.secret}`,
    `i d:${key.secret}`,
    `id:${"x".repeat(31)}`,
  ]) {
    assert.equal(parseNodeKey(bad), undefined, bad);
  }
  await assert.rejects(createSigner({ id: "x", secret: "short" }), TypeError);
});
