// Both dialects against a fake node, through the built Worker.

import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import OpenAI from "openai";
import {
  apiKey,
  chatChunk,
  type Edge,
  type FakeNode,
  fakeNode,
  startEdge,
  startStream,
  streamOrJson,
  type TestKey,
} from "./harness.ts";

const ACCOUNT = "acct-1";
let node: FakeNode;
let edge: Edge;
let key: TestKey;

before(async () => {
  node = await fakeNode("a", ["nano", "@cf/edgewise/nano"]);
  key = await apiKey("key1", ACCOUNT);
  edge = await startEdge({ nodes: [node], keys: [key] });
});
beforeEach(() => {
  node.behaviour = streamOrJson;
  node.seen.length = 0;
});
after(async () => {
  await edge.close();
  await node.close();
});

const messages = [{ role: "user" as const, content: "hi" }];
const native = `/client/v4/accounts/${ACCOUNT}/ai`;

function post(path: string, body: unknown): Promise<Response> {
  return fetch(edge.url + path, {
    method: "POST",
    headers: { authorization: `Bearer ${key.token}` },
    body: JSON.stringify(body),
  });
}

function get(path: string): Promise<Response> {
  return fetch(edge.url + path, { headers: { authorization: `Bearer ${key.token}` } });
}

for (const base of ["/v1", `${native}/v1`]) {
  test(`the openai client completes and streams under ${base}`, async () => {
    const client = new OpenAI({ baseURL: edge.url + base, apiKey: key.token, maxRetries: 0 });
    const whole = await client.chat.completions.create({ model: "nano", messages });
    assert.equal(whole.choices[0].message.content, "Hello");
    assert.match(whole._request_id ?? "", /^req_/);
    let text = "";
    for await (const chunk of await client.chat.completions.create({
      model: "nano",
      messages,
      stream: true,
    })) {
      text += chunk.choices[0]?.delta.content ?? "";
    }
    assert.equal(text, "Hello 🌍");
    const final = await client.chat.completions.stream({ model: "nano", messages }).finalContent();
    assert.equal(final, "Hello 🌍");
    const completion = await client.completions.create({ model: "nano", prompt: "hi" });
    assert.equal(completion.choices[0].text, "Hello");
    const models: string[] = [];
    for await (const model of client.models.list()) models.push(model.id);
    assert.deepEqual(models, ["@cf/edgewise/nano", "nano"]);
    assert.equal((await client.models.retrieve("@cf/edgewise/nano")).id, "@cf/edgewise/nano");
  });
}

test("a request reaches the node signed for the account, with the request id and unknown fields kept", async () => {
  const response = await fetch(`${edge.url}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key.token}`, "x-request-id": "mine-1" },
    body: JSON.stringify({ model: "nano", messages, chat_template_kwargs: { thinking: false }, extra: [1] }),
  });
  assert.equal(response.headers.get("x-request-id"), "mine-1");
  assert.equal(response.headers.get("x-edgewise-node"), "a");
  const [seen] = node.seen;
  assert.equal(seen.account, ACCOUNT);
  assert.equal(seen.headers["x-request-id"], "mine-1");
  assert.equal(seen.headers.authorization, undefined, "the API key must not reach a node");
  assert.deepEqual(JSON.parse(seen.body).extra, [1]);
});

test("native run takes a prompt or messages, plain and encoded slashes, and model plus input", async () => {
  const forms: [string, object][] = [
    [`${native}/run/nano`, { prompt: "hi" }],
    [`${native}/run/nano`, { messages }],
    [`${native}/run/@cf/edgewise/nano`, { prompt: "hi" }],
    [`${native}/run/@cf%2Fedgewise%2Fnano`, { prompt: "hi" }],
    [`${native}/run`, { model: "@cf/edgewise/nano", input: { messages } }],
  ];
  for (const [path, body] of forms) {
    const response = await post(path, body);
    assert.equal(response.status, 200, path);
    const { result, ...envelope } = (await response.json()) as { result: Record<string, unknown> };
    assert.deepEqual(envelope, { success: true, errors: [], messages: [] });
    assert.equal(result.response, "Hello");
    assert.deepEqual(result.usage, { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 });
    assert.deepEqual(JSON.parse(node.seen.at(-1)!.body).messages, messages);
    assert.equal(
      JSON.parse(node.seen.at(-1)!.body).model,
      path.endsWith("/nano") && !path.includes("cf") ? "nano" : "@cf/edgewise/nano",
    );
  }
});

test("raw prompts go past the chat template", async () => {
  const response = await post(`${native}/run/nano`, { prompt: "Once", raw: true });
  assert.equal(((await response.json()) as { result: { response: string } }).result.response, "Hello");
  assert.equal(node.seen[0].path, "/v1/completions");
  assert.equal(JSON.parse(node.seen[0].body).prompt, "Once");
});

test("native streams are frames of text, then the usage, then [DONE]", async () => {
  const response = await post(`${native}/run/nano`, { prompt: "hi", stream: true });
  assert.match(response.headers.get("content-type") ?? "", /^text\/event-stream/);
  const data = [...(await response.text()).matchAll(/^data: (.*)$/gm)].map((match) => match[1]);
  assert.equal(data.pop(), "[DONE]");
  const frames = data.map((text) => JSON.parse(text));
  assert.equal(frames.map((frame) => frame.response).join(""), "Hello 🌍");
  assert.ok(frames.every((frame) => typeof frame.p === "string"));
  assert.deepEqual(frames.at(-1).usage, { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 });
  assert.deepEqual(JSON.parse(node.seen[0].body).stream_options, { include_usage: true });
});

test("native tools may be flat, and calls come back with their arguments as an object", async () => {
  node.behaviour = (response) => {
    const calls = [{ id: "c1", type: "function", function: { name: "add", arguments: '{"a":1}' } }];
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ choices: [{ message: { content: null, tool_calls: calls } }], usage: {} }));
  };
  const tools = [{ name: "add", description: "adds", parameters: { type: "object" } }];
  const { result } = (await (await post(`${native}/run/nano`, { messages, tools })).json()) as {
    result: { response: string; tool_calls: unknown };
  };
  assert.equal(result.response, "");
  assert.deepEqual(result.tool_calls, [{ name: "add", arguments: { a: 1 } }]);
  assert.equal(JSON.parse(node.seen[0].body).tools[0].function.name, "add");
});

test("paging through the model catalogue ends with an empty page", async () => {
  const found: string[] = [];
  for (let page = 1; ; page++) {
    assert.ok(page < 5, "the list never ended");
    const response = await get(`${native}/models/search?per_page=1&page=${page}`);
    const { result, result_info } = (await response.json()) as {
      result: { name: string }[];
      result_info: { total_count: number; count: number };
    };
    assert.equal(result_info.total_count, 2);
    assert.equal(result_info.count, result.length);
    if (result.length === 0) break;
    found.push(result[0].name);
  }
  assert.deepEqual(found, ["@cf/edgewise/nano", "nano"]);
});

test("an event cut anywhere, even inside a character, arrives whole", async () => {
  const bytes = Buffer.from(`${chatChunk({ role: "assistant", content: "🌍" })}data: [DONE]\n\n`);
  node.behaviour = async (response) => {
    startStream(response);
    for (const byte of bytes) {
      response.write(Buffer.from([byte]));
      await new Promise(setImmediate);
    }
    response.end();
  };
  const plain = await (await post("/v1/chat/completions", { model: "nano", messages, stream: true })).text();
  assert.equal(plain, bytes.toString());
  const framed = await (await post(`${native}/run/nano`, { prompt: "x", stream: true })).text();
  assert.match(framed, /"response":"🌍"/);
});

test("livez and readyz need no key; readiness follows the nodes", async () => {
  assert.equal((await fetch(`${edge.url}/livez`)).status, 200);
  assert.equal((await fetch(`${edge.url}/readyz`)).status, 200);
  node.ready = false;
  const response = await fetch(`${edge.url}/readyz`);
  node.ready = true;
  assert.equal(response.status, 503);
  assert.deepEqual(await response.json(), { ready: false, nodes: [{ id: "a", ready: false }] });
});

test("a path that knows another method says which", async () => {
  const headers = { authorization: `Bearer ${key.token}` };
  const ask = async (method: string, path: string) => {
    const response = await fetch(edge.url + path, { method, headers });
    return `${response.status} ${await response.text()}`;
  };
  for (const method of ["PUT", "DELETE", "PATCH", "POST"]) {
    assert.match(await ask(method, "/v1/models"), /^405 .*use GET\./, method);
  }
  for (const method of ["PUT", "DELETE", "GET"]) {
    assert.match(await ask(method, `${native}/run/nano`), /^405 .*use POST\./, method);
  }
  for (const method of ["PUT", "POST", "GET"])
    assert.match(await ask(method, "/v1/nothing"), /^404 /, method);
});

test("several choices are refused where frames can't tell them apart", async () => {
  for (const input of [{ messages }, { prompt: "hi" }, { prompt: "hi", raw: true }]) {
    const response = await post(`${native}/run/nano`, { ...input, n: 2, stream: true });
    assert.equal(response.status, 400);
    const { errors } = (await response.json()) as { errors: { field: string }[] };
    assert.equal(errors[0].field, "n");
    assert.equal(node.seen.length, 0);
  }
  assert.equal((await post(`${native}/run/nano`, { messages, n: 2 })).status, 200);
});
