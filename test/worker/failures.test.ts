// What happens when nodes fail, clients leave, or requests are wrong.

import assert from "node:assert/strict";
import http from "node:http";
import { after, before, beforeEach, test } from "node:test";
import { rank } from "../../worker/route.ts";
import {
  apiKey,
  type Behaviour,
  chatChunk,
  closedPort,
  type Edge,
  type FakeNode,
  fakeNode,
  json,
  pour,
  sleep,
  startEdge,
  startStream,
  streamOrJson,
  type TestKey,
} from "./harness.ts";

const ACCOUNT = "acct-1";
const messages = [{ role: "user", content: "hi" }];
const native = `/client/v4/accounts/${ACCOUNT}/ai`;
/** Every test has a model and two nodes of its own, so that marks left by one test do not steer another. */
const MODELS = Array.from({ length: 20 }, (_, i) => `model-${i}`);
const pairs = new Map<string, [FakeNode, FakeNode]>();
let unused = MODELS.length;
let model: string;
let first: FakeNode;
let second: FakeNode;
let edge: Edge;
let key: TestKey;

before(async () => {
  for (const name of MODELS) {
    pairs.set(name, [await fakeNode(`${name}-a`, [name]), await fakeNode(`${name}-b`, [name])]);
  }
  key = await apiKey("key1", ACCOUNT);
  edge = await startEdge({ nodes: [...pairs.values()].flat(), keys: [key] });
});
beforeEach(() => {
  model = MODELS[--unused];
  [first, second] = pairs.get(model)!;
});
after(async () => {
  await edge.close();
  for (const node of [...pairs.values()].flat()) await node.close();
});

function post(
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
  url = edge.url,
): Promise<Response> {
  return fetch(url + path, {
    method: "POST",
    headers: { authorization: `Bearer ${key.token}`, ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
  });
}

const chat = (rest: object = {}, headers = {}) =>
  post("/v1/chat/completions", { model, messages, ...rest }, headers);

/** The node that a session named by header starts on. */
function homeOf(session: string): [FakeNode, FakeNode] {
  const order = rank(
    `${ACCOUNT}\n${model}\nid\n${session}`,
    [first, second].map(({ id }) => ({ id, weight: 1, load: 0, healthy: true })),
  );
  return order[0].id === first.id ? [first, second] : [second, first];
}

/** Starts a request and leaves once `until` says so; resolves with the status seen, 0 when none came. */
async function leave(path: string, body: object, until: (status: number) => Promise<void>): Promise<void> {
  const url = new URL(path, edge.url);
  let request: http.ClientRequest | undefined;
  const answered = new Promise<number>((resolve) => {
    request = http.request(
      url,
      { method: "POST", headers: { authorization: `Bearer ${key.token}` } },
      (response) => {
        response.on("error", () => {});
        response.once("data", () => resolve(response.statusCode ?? 0));
      },
    );
    request.on("error", () => resolve(0));
    request.end(JSON.stringify(body));
  });
  await Promise.race([answered.then(until), until(0)]);
  request?.destroy();
}

const stuck: Behaviour = () => {};

for (const [what, behaviour] of Object.entries<Behaviour>({
  "closes the connection": (response) => void response.destroy(),
  "answers 500": (response) => void json(response, 500, { error: { message: "x", code: "engine_failed" } }),
  "is draining": (response) => void json(response, 503, { error: { message: "x", code: "draining" } }),
  "answers something that is not its protocol": (response) => void response.end("hello"),
  redirects: (response) => void response.writeHead(302, { location: "http://127.0.0.1:1/" }).end(),
  "puts an error first in its stream": (response) => {
    startStream(response);
    response.end(
      'data: {"error":{"message":"x","code":"engine_failed","type":"server_error","param":null}}\n\n',
    );
  },
})) {
  test(`when a node ${what} before the first byte, the other node answers`, async () => {
    const [home, other] = homeOf("s1");
    home.behaviour = behaviour;
    const response = await chat({ stream: true }, { "x-session-affinity": "s1" });
    assert.equal(response.status, 200);
    assert.match(await response.text(), /lo 🌍[\s\S]*\[DONE\]\n\n$/);
    assert.equal(response.headers.get("x-edgewise-node"), other.id);
    assert.equal(home.seen.length, 1);
    assert.equal(home.seen[0].headers["x-request-id"], other.seen[0].headers["x-request-id"]);
  });
}

test("a node's own 4xx is final: no other node is asked, code and field are kept", async () => {
  const error = {
    message: "too long",
    type: "invalid_request_error",
    param: "messages",
    code: "context_length_exceeded",
  };
  for (const node of [first, second]) node.behaviour = (response) => json(response, 400, { error });
  const response = await chat();
  assert.equal(response.status, 400);
  assert.deepEqual(((await response.json()) as { error: object }).error, error);
  assert.equal(first.seen.length + second.seen.length, 1);
  const prompt = await post(`${native}/run/${model}`, { prompt: "hi" });
  assert.equal(prompt.status, 400);
  const [detail] = ((await prompt.json()) as { errors: { code: number; field: string }[] }).errors;
  assert.equal(detail.code, 8001);
  assert.equal(detail.field, "prompt");
});

test("after the first byte nothing is replayed: the stream ends with an error event and no [DONE]", async () => {
  for (const node of [first, second]) {
    node.behaviour = async (response) => {
      startStream(response);
      response.write(chatChunk({ role: "assistant", content: "Hel" }));
      await sleep(50);
      response.destroy();
    };
  }
  const openai = await (await chat({ stream: true })).text();
  assert.match(openai, /"Hel"[\s\S]*data: \{"error":\{[^\n]*"code":"upstream_disconnect"\}\}\n\n$/);
  const framed = await (await post(`${native}/run/${model}`, { messages, stream: true })).text();
  assert.match(
    framed,
    /"Hel"[\s\S]*data: \{"result":null,"success":false,"errors":\[\{"code":7009[^\n]*\n\n$/,
  );
  assert.ok(!openai.includes("[DONE]") && !framed.includes("[DONE]"));
  assert.equal(first.seen.length + second.seen.length, 2);
});

test("an error of the node within a stream keeps its code in both dialects; an unknown one is upstream_error", async () => {
  for (const [sent, told, number] of [
    ["kv_integrity", "kv_integrity", 7009],
    ["queue_full", "queue_full", 3040],
    ["no_such_code", "upstream_error", 7009],
  ]) {
    const error = { message: "why", type: "server_error", param: null, code: sent };
    for (const node of [first, second]) {
      node.behaviour = (response) => {
        startStream(response);
        response.write(chatChunk({ role: "assistant", content: "Hel" }));
        response.end(`data: ${JSON.stringify({ error })}\n\n`);
      };
    }
    const last = (text: string) => JSON.parse(text.trimEnd().split("\n\n").at(-1)!.slice("data: ".length));
    const framed = last(await (await post(`${native}/run/${model}`, { messages, stream: true })).text());
    assert.deepEqual(framed.errors, [{ code: number, message: "why", error_code: told }]);
    assert.deepEqual(last(await (await chat({ stream: true })).text()), { error });
  }
});

test("an answer that no node can vouch for is a retryable 500 in both dialects", async () => {
  for (const node of [first, second]) {
    node.behaviour = (response) =>
      void json(response, 500, { error: { message: "why", type: "server_error", code: "kv_integrity" } });
  }
  const openai = await chat();
  assert.deepEqual([openai.status, openai.headers.get("x-should-retry")], [500, "true"]);
  assert.equal(((await openai.json()) as { error: { code: string } }).error.code, "kv_integrity");
  const framed = await post(`${native}/run/${model}`, { messages });
  assert.deepEqual([framed.status, framed.headers.get("x-should-retry")], [500, "true"]);
  const { errors } = (await framed.json()) as { errors: { error_code: string }[] };
  assert.equal(errors[0].error_code, "kv_integrity");
});

test("a client that leaves a running stream stops the node", async () => {
  for (const node of [first, second]) {
    node.behaviour = async (response) => {
      startStream(response);
      for (let i = 0; !response.destroyed && i < 200; i++) {
        response.write(chatChunk({ role: "assistant", content: `${i} ` }));
        await sleep(20);
      }
    };
  }
  await leave("/v1/chat/completions", { model, messages, stream: true }, async (status) => {
    await sleep(status === 200 ? 100 : 10_000);
  });
  const [seen] = [...first.seen, ...second.seen];
  assert.ok((await seen.leftAfter) < 3_900, "the node was left running");
});

test("a client that leaves before the first byte stops the node: stream, native stream, and whole answer", async () => {
  for (const node of [first, second]) node.behaviour = stuck;
  const calls: [string, object][] = [
    ["/v1/chat/completions", { model, messages, stream: true }],
    [`${native}/run/${model}`, { messages, stream: true }],
    ["/v1/chat/completions", { model, messages }],
  ];
  await Promise.all(calls.map(([path, body]) => leave(path, body, () => sleep(500))));
  const seen = [...first.seen, ...second.seen];
  assert.equal(seen.length, 3);
  await Promise.all(seen.map((request) => request.leftAfter));
});

test("a slow answer still arrives whole behind heartbeats", async () => {
  for (const node of [first, second]) {
    node.behaviour = async (response, seen) => {
      await sleep(JSON.parse(seen.body).stream ? 3_000 : 6_500);
      await streamOrJson(response, seen);
    };
  }
  const [stream, whole] = await Promise.all([chat({ stream: true }), chat()]);
  const text = await stream.text();
  assert.match(text, /^: waiting\n\n/);
  assert.match(text, /lo 🌍[\s\S]*\[DONE\]\n\n$/);
  const body = await whole.text();
  assert.match(body, /^\n+\{/);
  assert.equal(JSON.parse(body).choices[0].message.content, "Hello");
});

test("a late failure is told in the body, and a stream that failed has no [DONE]", async () => {
  for (const node of [first, second]) {
    node.behaviour = async (response, seen) => {
      await sleep(JSON.parse(seen.body).stream ? 2_000 : 5_500);
      response.destroy();
    };
  }
  const [stream, whole] = await Promise.all([chat({ stream: true }), chat()]);
  assert.match(await stream.text(), /"code":"upstream_disconnect"\}\}\n\n$/);
  assert.equal(JSON.parse(await whole.text()).error.code, "upstream_disconnect");
});

test("a node that does not listen is passed over; when none is left the answer is a retryable 5xx", async (t) => {
  const dead = `http://127.0.0.1:${await closedPort()}`;
  const half = await startEdge({ nodes: [{ id: "dead", url: dead, models: [model] }, first], keys: [key] });
  t.after(() => half.close());
  for (let i = 0; i < 8; i++) {
    const response = await post(
      "/v1/chat/completions",
      { model, messages: [{ role: "user", content: `q${i}` }] },
      {},
      half.url,
    );
    assert.equal(response.headers.get("x-edgewise-node"), first.id);
    await response.text();
  }
  const none = await startEdge({ nodes: [{ id: "dead", url: dead, models: [model] }], keys: [key] });
  t.after(() => none.close());
  const response = await post("/v1/chat/completions", { model, messages }, {}, none.url);
  assert.equal(response.status, 502);
  assert.equal(response.headers.get("x-should-retry"), "true");
  assert.equal((await fetch(`${none.url}/readyz`)).status, 503);
});

test("requests that come together before the nodes are known all find one, also when the first one leaves", async (t) => {
  t.after(() => {
    first.modelsMs = 0;
  });
  first.modelsMs = 400;
  const send = (url: string, signal?: AbortSignal) =>
    fetch(`${url}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${key.token}` },
      body: JSON.stringify({ model, messages }),
      signal,
    });
  const together = await startEdge({ nodes: [first], keys: [key] });
  t.after(() => together.close());
  const statuses = await Promise.all([1, 2, 3, 4].map(async () => (await send(together.url)).status));
  assert.deepEqual(statuses, [200, 200, 200, 200]);

  const left = await startEdge({ nodes: [first], keys: [key] });
  t.after(() => left.close());
  const gone = new AbortController();
  const leaves = send(left.url, gone.signal).catch(() => "left");
  await sleep(200);
  gone.abort();
  assert.equal(await leaves, "left");
  assert.equal((await send(left.url)).status, 200);
});

test("a node that refuses our signature is our fault, not the client's", async (t) => {
  const wrong = await startEdge({
    nodes: [{ id: first.id, url: first.url, models: [model] }],
    keys: [key],
    nodeKeys: [{ id: "test-edge", secret: "w".repeat(40) }],
  });
  t.after(() => wrong.close());
  const response = await post("/v1/chat/completions", { model, messages }, {}, wrong.url);
  assert.equal(response.status, 502);
  assert.equal(((await response.json()) as { error: { code: string } }).error.code, "upstream_error");
});

test("a session keeps its node over two gateways, and sessions use both nodes", async (t) => {
  const other = await startEdge({ nodes: [second, first], keys: [key] });
  t.after(() => other.close());
  const used = new Set<string | null>();
  for (let session = 0; session < 8; session++) {
    const headers = { "x-session-affinity": `s${session}` };
    const places = new Set<string | null>();
    for (const url of [edge.url, other.url, edge.url]) {
      const response = await post("/v1/chat/completions", { model, messages }, headers, url);
      places.add(response.headers.get("x-edgewise-node"));
      await response.text();
    }
    assert.equal(places.size, 1);
    used.add([...places][0]);
  }
  assert.deepEqual([...used].sort(), [first.id, second.id]);
});

test("a client that sends far too much still gets its 413, declared or not", async () => {
  const authorization = `Bearer ${key.token}`;
  for (const size of [9_000_000, 100_000_000]) {
    const lengths: Record<string, string>[] = [{ "content-length": String(size) }, {}];
    for (const length of lengths) {
      const headers = { authorization, ...length };
      const { status, text } = await pour(`${edge.url}/v1/chat/completions`, headers, size);
      assert.equal(status, 413);
      assert.equal(JSON.parse(text).error.code, "body_too_large");
    }
  }
});
