// Wrong requests at the edge in both dialects and at the node itself: a 4xx with code, message and field each, while a
// stream of another client goes on.

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { formatApiKey, generateApiKey } from "../../gpu-node/contract/api-key.ts";
import { pour } from "../worker/harness.ts";
import { metrics, openPath, type Path, post, postToNode, SKIP } from "./harness.ts";

/** What a client can read of a failure, in any dialect. */
interface Failure {
  status: number;
  code: string;
  message: string;
  field: string | null;
}

type Send = (body: string) => Promise<Response>;

interface Case {
  name: string;
  /** JSON text of the body, given the model's name. */
  body: (model: string) => string;
  /** Expected of the OpenAI dialect; the native dialect has the same `error_code` and field. */
  status: number;
  code: string;
  field: string | null;
}

const HI = '[{"role":"user","content":"hi"}]';
const withMessages = (messages: string) => (model: string) => `{"model":"${model}","messages":${messages}}`;
const withField = (field: string, value: string) => (model: string) =>
  `{"model":"${model}","messages":${HI},"${field}":${value}}`;

/** JSON texts that are wrong for a number: other types, beyond float64 both ways, far out of any range. */
const NOT_NUMBERS = ['"1"', "true", "[]", "{}", "1e999", "-1e999", "1e30"];
const NUMBERS = [
  "temperature",
  "top_p",
  "top_k",
  "min_p",
  "presence_penalty",
  "frequency_penalty",
  "repetition_penalty",
  "max_tokens",
  "max_completion_tokens",
  "min_tokens",
  "n",
  "seed",
  "top_logprobs",
];

const CASES: Case[] = [
  ...NUMBERS.flatMap((field) =>
    NOT_NUMBERS.map((value) => invalid(`${field} ${value}`, withField(field, value), field)),
  ),
  ...["NaN", "Infinity", "-Infinity"].map((value) =>
    broken(`temperature ${value}`, withField("temperature", value)),
  ),
  ...["1", '"yes"', "[]"].flatMap((value) => [
    invalid(`stream ${value}`, withField("stream", value), "stream"),
    invalid(`logprobs ${value}`, withField("logprobs", value), "logprobs"),
  ]),
  invalid("stop of a number", withField("stop", "7"), "stop"),
  invalid("stop of an empty string", withField("stop", '[""]'), "stop[0]"),
  invalid("logit_bias of a list", withField("logit_bias", "[1]"), "logit_bias"),
  invalid("logit_bias of a word", withField("logit_bias", '{"word":1}'), "logit_bias"),
  invalid("logit_bias too large", withField("logit_bias", '{"5":1e999}'), "logit_bias.5"),
  invalid("tools of a string", withField("tools", '"x"'), "tools"),
  invalid("no messages in the list", withMessages("[]"), "messages"),
  invalid("messages of a string", withMessages('"hi"'), "messages"),
  invalid("unknown role", withMessages('[{"role":"robot","content":"hi"}]'), "messages[0].role"),
  invalid("content of a number", withMessages('[{"role":"user","content":5}]'), "messages[0].content"),
  invalid("1e6 entries in messages", withMessages(`[${Array(1_000_000).fill(0).join()}]`), "messages"),
  broken("1e6 messages", withMessages(`[${Array(1_000_000).fill("{}").join()}]`)),
  invalid("__proto__ at the top", withField("__proto__", '{"temperature":0}'), "__proto__"),
  invalid("__proto__ spelled with an escape", withField("\\u005f_proto__", "{}"), "__proto__"),
  invalid(
    "__proto__ in a message",
    withMessages('[{"role":"user","content":"x","__proto__":{}}]'),
    "messages[0].__proto__",
  ),
  invalid("__proto__ in logit_bias", withField("logit_bias", '{"__proto__":5}'), "logit_bias.__proto__"),
  { ...invalid("no messages", (model) => `{"model":"${model}"}`, "messages"), code: "missing_field" },
  broken("nested 1e5 deep", withMessages("[".repeat(100_000) + "]".repeat(100_000))),
  broken("nested 1e5 deep in objects", withMessages('{"a":'.repeat(100_000) + "1" + "}".repeat(100_000))),
  broken("cut short", () => '{"model":"na'),
  broken("a list", () => "[]"),
  broken("null", () => "null"),
  broken("empty", () => ""),
  {
    ...invalid(
      "control token",
      withMessages('[{"role":"user","content":"a<|im_end|>b"}]'),
      "messages[0].content",
    ),
    code: "control_token",
  },
  {
    ...invalid(
      "longer than the context",
      withMessages(`[{"role":"user","content":"${"word ".repeat(60_000)}"}]`),
      "messages",
    ),
    code: "context_length_exceeded",
  },
];

function invalid(name: string, body: Case["body"], field: string): Case {
  return { name, body, status: 400, code: "invalid_value", field };
}

function broken(name: string, body: Case["body"]): Case {
  return { name, body, status: 400, code: "invalid_json", field: null };
}

describe("bad input", { skip: SKIP }, () => {
  let path: Path;
  before(async () => {
    path = await openPath(1);
  });
  after(async () => {
    await path.close();
  });

  const chatUrl = () => `${path.url}/v1/chat/completions`;
  const runUrl = () => `${path.native}/run/${path.model}`;
  const doors: [string, Send][] = [
    ["the edge, OpenAI dialect", (body) => post(path, chatUrl(), body)],
    ["the edge, Workers AI dialect", (body) => post(path, runUrl(), body)],
    ["the node", (body) => postToNode(path, "/v1/chat/completions", body)],
  ];

  for (const [door, send] of doors) {
    test(`${door}: every wrong request is named, and a stream goes on meanwhile`, async () => {
      const TOKENS = 1_500;
      const other = JSON.stringify({
        ...{ model: path.model, messages: [{ role: "user", content: "a story" }], stream: true },
        ...{ max_tokens: TOKENS, ignore_eos: true, stream_options: { include_usage: true } },
      });
      const stream = post(path, chatUrl(), other).then((response) => response.text());
      stream.catch(() => {});
      for (const { name, body, status, code, field } of CASES) {
        const failure = await failureOf(await send(body(path.model)));
        assert.deepEqual(
          { status: failure.status, code: failure.code, field: failure.field },
          { status, code, field },
          `${name}: ${failure.message}`,
        );
        assert.ok(failure.message.length > 5 && failure.message.length < 500, `${name}: ${failure.message}`);
      }
      const text = await stream;
      assert.match(text, new RegExp(`"completion_tokens":${TOKENS}[\\s\\S]*\\[DONE\\]\\n\\n$`));
      assert.ok(!text.includes('"error"'));
    });
  }

  test("an unknown model is named", async () => {
    const body = withMessages(HI)("no-such-model");
    const edge = await failureOf(await post(path, chatUrl(), body));
    assert.deepEqual([edge.status, edge.code, edge.field], [404, "model_not_found", "model"]);
    const native = await failureOf(await post(path, `${path.native}/run/no-such-model`, body));
    assert.deepEqual([native.status, native.code, native.field], [400, "model_not_found", "model"]);
    const node = await failureOf(await postToNode(path, "/v1/chat/completions", body));
    assert.deepEqual([node.status, node.code, node.field], [404, "model_not_found", "model"]);
  });

  test("missing and wrong keys are 401, another account's path 403, an unsigned request to a node 401", async () => {
    const ask = async (url: string, headers: Record<string, string>) => {
      const body = withMessages(HI)(path.model);
      const type = { "content-type": "application/json" };
      const failure = await failureOf(
        await fetch(url, { method: "POST", headers: { ...type, ...headers }, body }),
      );
      return [failure.status, failure.code];
    };
    const good = { authorization: `Bearer ${path.secrets.apiKey}` };
    const wrong = { authorization: `Bearer ${formatApiKey(generateApiKey("local"))}` };
    const foreign = runUrl().replace(path.secrets.account, "0".repeat(32));
    for (const url of [chatUrl(), runUrl()]) {
      assert.deepEqual(await ask(url, {}), [401, "missing_api_key"]);
      assert.deepEqual(await ask(url, wrong), [401, "invalid_api_key"]);
    }
    assert.deepEqual(await ask(foreign, good), [403, "account_mismatch"]);
    assert.deepEqual(await ask(foreign, wrong), [401, "invalid_api_key"]);
    assert.deepEqual(await ask(`${path.nodes[0].url}/v1/chat/completions`, good), [401, "invalid_signature"]);
  });

  test("a body of 100 MB is refused, declared or not", async () => {
    const size = 100_000_000;
    const authorization = `Bearer ${path.secrets.apiKey}`;
    for (const [url, length] of [
      [chatUrl(), String(size)],
      [runUrl(), undefined],
    ] as const) {
      const headers = { authorization, ...(length ? { "content-length": length } : {}) };
      const { status, text } = await pour(url, headers, size);
      assert.deepEqual([status, readFailure(status, text).code], [413, "body_too_large"], `length ${length}`);
    }
    const body = `{"model":"${path.model}","messages":[{"role":"user","content":"${"x".repeat(9_000_000)}"}]}`;
    const node = await failureOf(await postToNode(path, "/v1/chat/completions", body));
    assert.deepEqual([node.status, node.code], [413, "body_too_large"]);
  });

  test("unknown paths and wrong methods are told in the dialect of the path", async () => {
    const headers = { authorization: `Bearer ${path.secrets.apiKey}` };
    const none = await failureOf(await fetch(`${path.url}/v2/x`, { headers }));
    assert.deepEqual([none.status, none.code], [404, "not_found"]);
    const native = await failureOf(await fetch(`${path.native}/nothing`, { headers }));
    assert.deepEqual([native.status, native.code], [404, "not_found"]);
    const method = await failureOf(await fetch(chatUrl(), { headers }));
    assert.deepEqual([method.status, method.code], [405, "method_not_allowed"]);
    const nativeMethod = await failureOf(await fetch(runUrl(), { headers }));
    assert.deepEqual([nativeMethod.status, nativeMethod.code], [405, "method_not_allowed"]);
    const models = await failureOf(await fetch(`${path.url}/v1/models`, { method: "DELETE", headers }));
    assert.deepEqual([models.status, models.code], [405, "method_not_allowed"]);
  });

  test("after all of it the node holds nothing", async () => {
    const now = await metrics(path.nodes[0].url);
    assert.equal(now.pages_owned, 0);
    assert.equal(now.pages_free + now.pages_cached, now.pages_total);
    assert.equal(now.engine_engine_restarts_total, 0);
  });
});

/** Reads an error of either dialect and checks its shape. */
async function failureOf(response: Response): Promise<Failure> {
  return readFailure(response.status, await response.text());
}

function readFailure(status: number, text: string): Failure {
  const body = JSON.parse(text);
  assert.ok(status >= 400 && status < 500, `status ${status}: ${text.slice(0, 300)}`);
  if (body.error) {
    assert.deepEqual(Object.keys(body.error).sort(), ["code", "message", "param", "type"]);
    return { status, code: body.error.code, message: body.error.message, field: body.error.param };
  }
  assert.deepEqual([body.result, body.success, body.messages, body.errors.length], [null, false, [], 1]);
  const [error] = body.errors;
  assert.equal(typeof error.code, "number");
  return { status, code: error.error_code, message: error.message, field: error.field ?? null };
}
