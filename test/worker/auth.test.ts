import assert from "node:assert/strict";
import { test } from "node:test";
import { formatApiKey, generateApiKey, parseApiKey } from "../../gpu-node/contract/api-key.ts";
import { ApiError } from "../../gpu-node/contract/errors.ts";
import { Admission } from "../../worker/admit.ts";
import { createKeyRing, requireAccount } from "../../worker/auth.ts";
import { readConfig } from "../../worker/config.ts";
import { EDGE } from "../../worker/limits.ts";
import { apiKey, PEPPER } from "./harness.ts";

const NOW = Date.parse("2026-12-01T00:00:00Z");

async function ring() {
  const good = await apiKey("good", "acct");
  const revoked = await apiKey("revoked", "acct", { status: "revoked" });
  const expiring = await apiKey("expiring", "acct", { expires: "2026-12-01T00:00:01Z" });
  const records = [good, revoked, expiring].map((key) => key.record);
  return { good, revoked, expiring, keys: await createKeyRing(records, PEPPER) };
}

const code = (expected: string) => (error: unknown) => error instanceof ApiError && error.code === expected;

test("a valid key names its account", async () => {
  const { good, keys } = await ring();
  assert.deepEqual(await keys.authenticate(`Bearer ${good.token}`, NOW), { keyId: "good", account: "acct" });
  assert.deepEqual(await keys.authenticate(`bearer  ${good.token} `, NOW), {
    keyId: "good",
    account: "acct",
  });
});

test("missing, wrong, unknown, revoked and foreign keys are refused", async () => {
  const { good, revoked, keys } = await ring();
  for (const absent of [undefined, null, ""]) {
    await assert.rejects(keys.authenticate(absent, NOW), code("missing_api_key"));
  }
  const wrongSecret = formatApiKey(generateApiKey("good"));
  const unknown = formatApiKey(generateApiKey("unknown"));
  const otherPepper = await createKeyRing([good.record], "x".repeat(32));
  for (const token of [
    wrongSecret,
    unknown,
    revoked.token,
    good.token.slice(0, -1),
    `${good.token}0`,
    "sk-x",
    "ew__",
  ]) {
    await assert.rejects(keys.authenticate(`Bearer ${token}`, NOW), code("invalid_api_key"), token);
  }
  await assert.rejects(keys.authenticate(`Basic ${good.token}`, NOW), code("invalid_api_key"));
  await assert.rejects(keys.authenticate(`Bearer ${"x".repeat(100_000)}`, NOW), code("invalid_api_key"));
  await assert.rejects(otherPepper.authenticate(`Bearer ${good.token}`, NOW), code("invalid_api_key"));
});

test("a key expires at its time, and its secret is checked first", async () => {
  const { expiring, keys } = await ring();
  const expiry = Date.parse("2026-12-01T00:00:01Z");
  assert.equal((await keys.authenticate(`Bearer ${expiring.token}`, expiry - 1)).account, "acct");
  await assert.rejects(keys.authenticate(`Bearer ${expiring.token}`, expiry), code("expired_api_key"));
  const forged = formatApiKey(generateApiKey("expiring"));
  await assert.rejects(keys.authenticate(`Bearer ${forged}`, expiry), code("invalid_api_key"));
});

test("without any record every key is refused", async () => {
  const keys = await createKeyRing([], "");
  await assert.rejects(
    keys.authenticate(`Bearer ${formatApiKey(generateApiKey("good"))}`, NOW),
    code("invalid_api_key"),
  );
});

test("an account may only be named by its own key", () => {
  const caller = { keyId: "k", account: "a" };
  requireAccount(caller, "a");
  for (const other of ["b", "A", "", "__proto__"]) {
    assert.throws(() => requireAccount(caller, other), code("account_mismatch"));
  }
});

test("a key survives its text form", () => {
  const key = generateApiKey("abcd");
  assert.deepEqual(parseApiKey(formatApiKey(key)), key);
  assert.equal(parseApiKey(`ew_abcd_${"x".repeat(31)}`), undefined);
});

test("an account's requests in flight are bounded, and a lease that never ended expires", () => {
  const admission = new Admission();
  const leases = Array.from({ length: EDGE.inFlightPerAccount }, () => admission.enter("a", 0));
  assert.throws(() => admission.enter("a", 1), code("rate_limit_exceeded"));
  admission.enter("b", 1).release();
  leases[0].release();
  leases[0].release();
  admission.enter("a", 2);
  assert.throws(() => admission.enter("a", 3), code("rate_limit_exceeded"));
  admission.enter("a", EDGE.leaseMs + 3);
});

test("a lease released twice frees nobody else's place", () => {
  const admission = new Admission();
  const early = admission.enter("a", 0);
  early.release();
  for (let i = 0; i < EDGE.inFlightPerAccount; i++) admission.enter("a", 1);
  early.release();
  assert.throws(() => admission.enter("a", 2), code("rate_limit_exceeded"));
});

test("a wrong setting is named, and no secret is repeated", () => {
  const nodes = '[{"id":"a","url":"http://h:1"}]';
  const secret = "s".repeat(40);
  const bad: [object, RegExp][] = [
    [{ EDGEWISE_NODES: "{" }, /^EDGEWISE_NODES: not valid JSON/],
    [{ EDGEWISE_NODES: '[{"id":"a","url":"ftp://h"}]' }, /^EDGEWISE_NODES: 0\.url/],
    [{ EDGEWISE_NODES: nodes }, /node a has no key/],
    [{ EDGEWISE_NODES: nodes, EDGEWISE_NODE_KEYS: `k ${secret}` }, /^EDGEWISE_NODE_KEYS/],
    [{ EDGEWISE_NODES: '[{"id":"a","url":"http://h","colour":1}]' }, /colour/],
    [
      { EDGEWISE_API_KEYS: `[{"id":"key1","account":"a","digest":"${secret}"}]` },
      /^EDGEWISE_API_KEYS: 0\.digest/,
    ],
    [
      { EDGEWISE_API_KEYS: `[{"id":"key1","account":"a","digest":"${"0".repeat(64)}"}]` },
      /^EDGEWISE_KEY_PEPPER/,
    ],
  ];
  for (const [env, message] of bad) {
    assert.throws(
      () => readConfig(env),
      (error: Error) => message.test(error.message) && !error.message.includes(secret),
      JSON.stringify(env),
    );
  }
});
