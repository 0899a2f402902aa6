import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { EngineErrorCode } from "../../../gpu-node/contract/engine.ts";
import { ApiError } from "../../../gpu-node/contract/errors.ts";
import { createVerifier } from "../../../gpu-node/contract/signing.ts";
import { END, events, harness, ids, key, says } from "./harness.ts";

const chat = { model: "nano", messages: [{ role: "user", content: "hi" }] };
const fails = (code: EngineErrorCode, at = 0) => ({
  groups: [ids("some"), ids(" text"), [END]],
  error: { at, event: { type: "error" as const, code, message: "it broke", retryable: true } },
});

test("an engine error before the first token is a status, in a stream too", async () => {
  const statuses = {
    prompt_too_long: 400,
    queue_full: 503,
    engine_failed: 503,
    draining: 503,
    kv_integrity: 500,
  };
  for (const [code, status] of Object.entries(statuses)) {
    for (const stream of [false, true]) {
      const h = await harness(fails(code as EngineErrorCode));
      const response = await h.post("/v1/chat/completions", { ...chat, stream });
      assert.equal(response.status, status, code);
      assert.match(response.headers.get("content-type")!, /json/);
      assert.equal(response.headers.get("x-should-retry"), "true");
      assert.deepEqual([h.engine.live, h.node.generations.size], [0, 0]);
    }
  }
});

test("an engine error after the first token is a JSON event, and no [DONE] follows", async () => {
  const h = await harness(fails("kv_integrity", 1));
  const parts = await events(await h.post("/v1/chat/completions", { ...chat, stream: true }));
  const last = parts.at(-1) as { error: { code: string; message: string } };
  assert.deepEqual([last.error.code, last.error.message], ["kv_integrity", "it broke"]);
  assert.ok(!parts.includes("[DONE]"));
  assert.match((await h.node.metrics.expose()).text, /edgewise_stream_errors_total\{code="kv_integrity"\} 1/);
  const whole = await h.post("/v1/chat/completions", chat);
  assert.equal(whole.status, 500);
});

test("one failed choice ends the others", async () => {
  const h = await harness((_, index) =>
    index === 1 ? fails("engine_failed") : { ...says("x y z"), hangAt: 1 },
  );
  const response = await h.post("/v1/chat/completions", { ...chat, n: 3 });
  assert.equal(response.status, 503);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(h.engine.live, 0);
});

test("an engine that ends without a result, or throws, is an error and not an empty answer", async () => {
  for (const generate of [
    async function* () {},
    // biome-ignore lint/correctness/useYield: it fails before its first event
    async function* () {
      throw new Error("segfault at 0xdeadbeef");
    },
  ]) {
    const h = await harness(says("x"));
    h.engine.generate = generate as unknown as typeof h.engine.generate;
    const response = await h.post("/v1/chat/completions", chat);
    assert.ok(response.status >= 500);
    assert.doesNotMatch(await response.text(), /0x/);
  }
});

test("a quiet stream commits after the heartbeat time and then carries comments and the late error", async () => {
  const h = await harness({ groups: [ids("a"), ids("b")], hangAt: 0 }, { heartbeatMs: 10 });
  const response = await h.post("/v1/chat/completions", { ...chat, stream: true });
  assert.equal(response.status, 200);
  setTimeout(() => h.node.generations.failAll(new ApiError("engine_failed", "The engine failed.")), 40);
  const text = await response.text();
  assert.match(text, /^: keep-alive\n\n/);
  assert.match(text, /data: \{"error":\{"message":"The engine failed\./);
  assert.deepEqual([h.engine.live, h.node.generations.size], [0, 0]);
});

test("a client that leaves ends its request: before the first token, in the stream, and while waiting whole", async () => {
  const until = async (done: () => boolean) => {
    for (let i = 0; i < 2000 && !done(); i++) await new Promise((resolve) => setTimeout(resolve, 1));
    assert.ok(done());
  };
  for (const stream of [false, true]) {
    const h = await harness({ groups: [ids("a")], hangAt: 0 });
    const gone = new AbortController();
    const pending = h.post("/v1/chat/completions", { ...chat, stream }, { signal: gone.signal });
    await until(() => h.engine.live === 1);
    gone.abort();
    assert.equal((await pending).status, 499);
    await until(() => h.engine.live === 0 && h.node.generations.size === 0);
  }
  const h = await harness({ groups: [ids("a"), ids("b")], hangAt: 1 });
  const response = await h.post("/v1/chat/completions", { ...chat, stream: true });
  const reader = response.body!.getReader();
  await reader.read();
  assert.equal(h.engine.live, 1);
  await reader.cancel();
  await until(() => h.engine.live === 0 && h.node.generations.size === 0);
});

test("while the engine loads, drains, has failed, stands still or distrusts its KV cache: 503 with Retry-After, and /livez stays 200", async () => {
  const h = await harness(says("x"));
  const cases = [
    ["loading", 0, "off", "loading"],
    ["draining", 0, "off", "draining"],
    ["failed", 0, "off", "engine_failed"],
    ["ready", 5000, "ok", "engine_failed"],
    ["ready", 0, "alarm", "engine_failed"],
  ] as const;
  for (const [state, heartbeatAge, integrity, code] of cases) {
    Object.assign(h.engine, { state, heartbeatAge, integrity });
    const ready = await h.app.request("/readyz");
    assert.equal(ready.status, 503);
    assert.ok(Number(ready.headers.get("retry-after")) > 0);
    const response = await h.post("/v1/chat/completions", chat);
    assert.equal(response.status, 503);
    assert.equal(((await response.json()) as { error: { code: string } }).error.code, code);
    assert.equal((await h.app.request("/livez")).status, 200);
  }
  h.engine.state = "loading";
  assert.equal(((await (await h.app.request("/readyz")).json()) as { progress: number }).progress, 0.25);
  Object.assign(h.engine, { state: "ready", heartbeatAge: 0, integrity: "ok" });
  assert.equal((await h.app.request("/readyz")).status, 200);
});

test("unsigned, tampered, replayed and late requests are refused before the body is looked at", async () => {
  const h = await harness(says("x"));
  const raw = JSON.stringify(chat);
  const path = "/v1/chat/completions";
  const send = (headers: Record<string, string>, body = raw) =>
    h.app.request(path, {
      method: "POST",
      body,
      headers: { "content-type": "application/json", ...headers },
    });
  const sign = () => h.signer.sign({ method: "POST", target: path, account: "acc", body: raw });
  const signed = await sign();
  assert.equal((await send({})).status, 401);
  assert.equal((await send(await sign(), `${raw} `)).status, 401);
  assert.equal((await send({ ...(await sign()), "x-edgewise-account": "other" })).status, 401);
  assert.equal((await send(signed)).status, 200);
  assert.equal((await send(signed)).status, 401, "a nonce is good once");
  assert.equal((await h.app.request("/v1/models")).status, 401);
  assert.equal(h.engine.requests.length, 1);

  const late = await harness(says("x"), {
    verifier: await createVerifier([key], () => Date.now() + 120_000),
  });
  assert.equal((await late.post(path, chat)).status, 401);
});

test("refusals before the engine carry code, field and request id", async () => {
  const h = await harness(says("x"), { maxModelLen: 32 });
  const refusal = async (body: unknown, path = "/v1/chat/completions") => {
    const response = await h.post(path, body, { headers: { "x-request-id": "abc-1" } });
    assert.equal(response.headers.get("x-request-id"), "abc-1");
    const { error } = (await response.json()) as { error: { code: string; param: string | null } };
    return `${response.status} ${error.code} ${error.param}`;
  };
  const user = (content: string) => [{ role: "user", content }];
  assert.equal(await refusal({ ...chat, model: "other" }), "404 model_not_found model");
  assert.equal(
    await refusal({ ...chat, messages: user("x ".repeat(50)) }),
    "400 context_length_exceeded messages",
  );
  assert.equal(
    await refusal({ ...chat, messages: user("a<|im_end|>") }),
    "400 control_token messages[0].content",
  );
  assert.equal(await refusal({ ...chat, logit_bias: { "4096": 1 } }), "400 invalid_value logit_bias.4096");
  assert.equal(await refusal({ ...chat, temperature: 3 }), "400 invalid_value temperature");
  assert.equal(await refusal({ model: "nano", prompt: "" }, "/v1/completions"), "400 invalid_value prompt");
  assert.equal(await refusal("[".repeat(100_000)), "400 invalid_json null");
  assert.equal(await refusal("x".repeat(9 * 1024 * 1024)), "413 body_too_large null");
  assert.equal(h.engine.requests.length, 0);
});

test("no body makes a 5xx or a hang, and none leaves a request behind", async () => {
  const h = await harness(says("ok"));
  const field = fc.constantFrom(
    ...[
      "messages",
      "prompt",
      "stop",
      "tools",
      "tool_choice",
      "n",
      "stream",
      "stream_options",
      "logit_bias",
      "seed",
    ],
    ...["response_format", "logprobs", "top_logprobs", "max_tokens", "chat_template_kwargs", "temperature"],
  );
  const body = fc.dictionary(field, fc.jsonValue({ maxDepth: 3 }), { maxKeys: 4 });
  const message = fc.record(
    { role: fc.constantFrom("user", "assistant", "system", "tool"), content: fc.jsonValue({ maxDepth: 2 }) },
    { requiredKeys: ["role"] },
  );
  const request = fc.tuple(body, fc.array(message, { maxLength: 3 }), fc.boolean());
  await fc.assert(
    fc.asyncProperty(request, fc.boolean(), async ([fields, messages, valid], completion) => {
      const path = completion ? "/v1/completions" : "/v1/chat/completions";
      const base = valid ? { ...chat, prompt: "p" } : { model: "nano", messages, prompt: "p" };
      const response = await h.post(path, { ...base, ...fields });
      await response.text();
      assert.ok(response.status < 500, `${response.status} for ${JSON.stringify({ ...base, ...fields })}`);
      assert.equal(h.node.generations.size, 0);
    }),
    { numRuns: 400 },
  );
  await fc.assert(
    fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), async (bytes) => {
      const response = await h.post("/v1/chat/completions", Buffer.from(bytes).toString("latin1"));
      assert.ok(response.status >= 400 && response.status < 500);
    }),
  );
  assert.deepEqual(h.logged, []);
});
