import assert from "node:assert/strict";
import { connect } from "node:net";
import { after, test } from "node:test";
import OpenAI from "openai";
import { UsageError } from "../../../gpu-node/options.ts";
import { type Listener, type ListenOptions, listen } from "../../../gpu-node/server/listen.ts";
import { END, type Harness, harness, ids, mark, says } from "./harness.ts";

const open: Listener[] = [];
after(() => Promise.all(open.map((listener) => listener.close(true))));

async function serve(
  h: Harness,
  limits: Partial<ListenOptions> = {},
): Promise<{ url: string; client: OpenAI }> {
  const listener = await listen((request) => h.app.fetch(request), {
    host: "127.0.0.1",
    port: 0,
    maxConnections: 100,
    ...limits,
  });
  open.push(listener);
  const client = new OpenAI({
    apiKey: "unused",
    baseURL: `${listener.url}/v1`,
    maxRetries: 0,
    // The edge's part: signs what the client sends.
    fetch: async (url, init) => {
      const target = new URL(String(url)).pathname;
      const signed = await h.signer.sign({
        method: init?.method ?? "GET",
        target,
        account: "acc",
        body: String(init?.body ?? ""),
      });
      const headers = new Headers(init?.headers);
      for (const [name, value] of Object.entries(signed)) headers.set(name, value);
      return fetch(url, { ...init, headers });
    },
  });
  return { url: listener.url, client };
}

const messages = [{ role: "user" as const, content: "hi" }];

test("the openai client reads whole answers, streams, tool calls, models and errors", async () => {
  const h = await harness((_, index) =>
    index < 3
      ? { ...says("Hello, wörld 😀"), cachedTokens: 3 }
      : {
          groups: [
            [mark("<|tool_calls_section_begin|>"), mark("<|tool_call_begin|>"), ...ids("functions.f:0")],
            [mark("<|tool_call_argument_begin|>"), ...ids('{"a": 1}')],
            [mark("<|tool_call_end|>"), mark("<|tool_calls_section_end|>"), END],
          ],
        },
  );
  const { client } = await serve(h);
  const whole = await client.chat.completions.create({ model: "nano", messages });
  assert.equal(whole.choices[0].message.content, "Hello, wörld 😀");
  assert.equal(whole.usage?.prompt_tokens_details?.cached_tokens, 3);
  assert.ok(whole._request_id);

  const stream = client.chat.completions.stream({
    model: "nano",
    messages,
    stream_options: { include_usage: true },
  });
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].message.content, "Hello, wörld 😀");
  assert.equal(final.usage?.completion_tokens, whole.usage?.completion_tokens);

  const legacy = await client.completions.create({ model: "nano", prompt: "a" });
  assert.equal(legacy.choices[0].text, "Hello, wörld 😀");

  const tools = [{ type: "function" as const, function: { name: "f", parameters: {} } }];
  const called = await client.chat.completions
    .stream({ model: "nano", messages, tools })
    .finalChatCompletion();
  const [call] = called.choices[0].message.tool_calls!;
  assert.ok(call.type === "function");
  assert.deepEqual(
    [call.id, call.function.name, call.function.arguments],
    ["functions.f:0", "f", '{"a": 1}'],
  );
  assert.equal(called.choices[0].finish_reason, "tool_calls");

  assert.deepEqual(
    (await client.models.list()).data.map(({ id }) => id),
    ["nano"],
  );
  assert.equal((await client.models.retrieve("nano")).id, "nano");
  await assert.rejects(client.chat.completions.create({ model: "other", messages }), (error) => {
    assert.ok(error instanceof OpenAI.NotFoundError);
    assert.deepEqual([error.code, error.param], ["model_not_found", "model"]);
    return true;
  });
});

test("an error in mid-stream reaches the openai client with its message", async () => {
  const event = {
    type: "error" as const,
    code: "kv_integrity" as const,
    message: "pages differ",
    retryable: true,
  };
  const { client } = await serve(
    await harness({ groups: [ids("some"), ids("more")], error: { at: 1, event } }),
  );
  const stream = await client.chat.completions.create({ model: "nano", messages, stream: true });
  await assert.rejects(async () => {
    for await (const _ of stream);
  }, /pages differ/);
});

test("64 requests at once, half of the clients leaving: the rest is whole and nothing stays alive", async () => {
  const h = await harness({ ...says("a fairly long answer that takes a while to come"), delay: 2 });
  const { client } = await serve(h);
  const results = await Promise.all(
    Array.from({ length: 64 }, async (_, i) => {
      const leave = new AbortController();
      if (i % 2 === 1) setTimeout(() => leave.abort(), (i * 7) % 40);
      try {
        const stream = await client.chat.completions.create(
          {
            model: "nano",
            messages,
            stream: (i % 4 < 2) as boolean,
          } as OpenAI.ChatCompletionCreateParamsStreaming,
          { signal: leave.signal },
        );
        if (i % 4 >= 2) return "whole";
        let text = "";
        for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
        return text;
      } catch {
        return "left";
      }
    }),
  );
  for (const [i, result] of results.entries()) {
    if (i % 2 === 0)
      assert.equal(result, i % 4 < 2 ? "a fairly long answer that takes a while to come" : "whole");
  }
  for (let wait = 0; h.engine.live + h.node.generations.size > 0 && wait < 200; wait++) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.deepEqual([h.engine.live, h.node.generations.size], [0, 0]);
});

/** Sends raw bytes and returns all that comes until the server closes the connection. */
function raw(
  url: string,
  write: (send: (bytes: string | Buffer) => boolean, answered: () => boolean) => void,
): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    let answer = "";
    const socket = connect(Number(port), hostname, () =>
      write(
        (bytes) => socket.write(bytes),
        () => answer !== "" || socket.destroyed,
      ),
    );
    socket.on("data", (bytes) => {
      answer += bytes.toString("latin1");
    });
    socket.on("error", () => {});
    socket.on("close", () => resolve(answer));
  });
}

test("a 100 MB body is refused with 413 before it has arrived, oversized headers with 431", async () => {
  const h = await harness(says("x"));
  const { url } = await serve(h);
  const sign = (target: string) => h.signer.sign({ method: "POST", target, account: "a", body: "" });
  const signed = Object.entries(await sign("/v1/chat/completions"))
    .map(([k, v]) => `${k}: ${v}\r\n`)
    .join("");
  let sent = 0;
  const answer = await raw(url, (send, answered) => {
    send(`POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n${signed}`);
    send("transfer-encoding: chunked\r\n\r\n");
    const block = Buffer.from(`100000\r\n${"x".repeat(0x100000)}\r\n`);
    const more = () => {
      if (answered() || sent >= 100) return;
      sent++;
      if (send(block)) setImmediate(more);
      else setTimeout(more, 1);
    };
    more();
  });
  assert.match(answer, /^HTTP\/1.1 413 /);
  assert.match(answer, /body_too_large/);
  assert.ok(sent < 100);
  const headers = await raw(url, (send) =>
    send(`GET /livez HTTP/1.1\r\nhost: x\r\nx: ${"y".repeat(20_000)}\r\n\r\n`),
  );
  assert.match(headers, /^HTTP\/1.1 431 /);
  assert.equal((await fetch(`${url}/livez`)).status, 200);
});

test("clients that drip headers or bodies are cut off, and others are served meanwhile", async () => {
  const { url } = await serve(await harness(says("x")), {
    headersTimeoutMs: 200,
    requestTimeoutMs: 400,
    checkMs: 50,
  });
  const drip = (start: string) =>
    raw(url, (send, answered) => {
      send(start);
      const timer = setInterval(() => (answered() ? clearInterval(timer) : send("x")), 20);
    });
  const slow = [
    drip("GET /livez HTTP/1.1\r\nx: "),
    drip("POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9999\r\n\r\n"),
  ];
  assert.equal((await fetch(`${url}/livez`)).status, 200);
  for (const answer of await Promise.all(slow)) assert.match(answer, /^(HTTP\/1.1 (408|401) |$)/);
});

test("a port that is taken is one clear line", async () => {
  const { url } = await serve(await harness(says("x")));
  const again = listen(() => new Response(), {
    host: "127.0.0.1",
    port: Number(new URL(url).port),
    maxConnections: 1,
  });
  await assert.rejects(
    again,
    (error) => error instanceof UsageError && /the port is taken/.test(error.message),
  );
});
