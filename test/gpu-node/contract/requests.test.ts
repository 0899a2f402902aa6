import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseChatRequest, refuseUnsupportedChat } from "../../../gpu-node/contract/chat.ts";
import { parseCompletionRequest } from "../../../gpu-node/contract/completions.ts";
import { ApiError, ERRORS, toApiError } from "../../../gpu-node/contract/errors.ts";
import { parseJsonObject, readBody } from "../../../gpu-node/contract/json.ts";
import { LIMITS } from "../../../gpu-node/contract/limits.ts";

const bytes = (text: string) => new TextEncoder().encode(text);
const chat = { model: "m", messages: [{ role: "user", content: "hi" }] };

/** The error that `run` throws; anything but an ApiError of the 4xx kind fails the test. */
function refusal(run: () => unknown): ApiError {
  try {
    run();
  } catch (error) {
    assert.ok(error instanceof ApiError, String(error));
    assert.equal(ERRORS[error.code].fault, "client");
    return error;
  }
  return assert.fail("was accepted");
}

const chatRefusal = (fields: object) => refusal(() => parseChatRequest({ ...chat, ...fields }));

test("a numeric field refuses every wrong type and every number out of range, and names itself", () => {
  const fields = {
    temperature: [-0.1, 2.1],
    top_p: [-0.1, 1.1],
    top_k: [-2, 1.5, 1e9],
    min_p: [-1, 2],
    n: [0, 1.5, 129],
    seed: [0.5, 2 ** 53],
    max_tokens: [0, -1, 1.5, 1e12],
    max_completion_tokens: [0, 1e12],
    presence_penalty: [-2.1, 2.1],
    frequency_penalty: [-3, 3],
    repetition_penalty: [0, -1, 11, 1e-50, 0.001],
    top_logprobs: [-1, 21],
  };
  for (const [field, outOfRange] of Object.entries(fields)) {
    const bad = [...outOfRange, "1", true, [], {}, NaN, Infinity, -Infinity, 1e308];
    for (const value of bad) {
      const error = chatRefusal({ [field]: value });
      assert.equal(error.param, field, `${field} = ${String(value)}`);
      assert.match(error.message, new RegExp(`^${field} `));
    }
  }
});

test("null and absent mean the same", () => {
  const request = parseChatRequest({ ...chat, temperature: null, stop: null, tools: null, logit_bias: null });
  assert.equal(request.temperature, undefined);
  assert.equal(request.logit_bias, undefined);
});

test("messages are refused by the path of what is wrong in them", () => {
  const at = (messages: unknown) => {
    const error = chatRefusal({ messages });
    return `${error.code} ${error.param}`;
  };
  assert.equal(at(undefined), "missing_field messages");
  assert.equal(at([]), "invalid_value messages");
  assert.equal(at("hi"), "invalid_value messages");
  assert.equal(at([{ role: "wizard", content: "x" }]), "invalid_value messages[0].role");
  assert.equal(at([...chat.messages, { role: "user" }]), "missing_field messages[1].content");
  assert.equal(at([{ role: "user", content: null }]), "invalid_value messages[0].content");
  assert.equal(
    at([{ role: "user", content: [{ type: "text", text: "a" }, { type: "image_url" }] }]),
    "invalid_value messages[0].content[1].type",
  );
  assert.equal(at([{ role: "tool", content: "x" }]), "missing_field messages[0].tool_call_id");
  assert.equal(at([{ role: "assistant", content: null }]), "invalid_value messages[0].content");
  assert.match(chatRefusal({ messages: [{ role: "wizard" }] }).message, /"wizard".*system, developer, user/);
});

test("an array over its bound is refused without its elements being looked at", () => {
  let looked = 0;
  const messages = Array.from({ length: LIMITS.messages + 1 }, () =>
    Object.defineProperty({}, "role", { enumerable: true, get: () => looked++ }),
  );
  assert.equal(chatRefusal({ messages }).param, "messages");
  assert.equal(looked, 0);
});

test("a key __proto__ is refused where it stands, escaped or not; constructor keys change nothing", () => {
  const at = (body: string) => refusal(() => parseJsonObject(bytes(body))).param;
  assert.equal(at('{"__proto__":{"temperature":9}}'), "__proto__");
  assert.equal(at('{"messages":[{},{"\\u005f_proto__":{"role":"system"}}]}'), "messages[1].__proto__");
  for (const [i, letter] of [..."__proto__"].entries()) {
    const escaped = `\\u00${letter.charCodeAt(0).toString(16).toUpperCase()}`;
    const spelled = `${"__proto__".slice(0, i)}${escaped}${"__proto__".slice(i + 1)}`;
    assert.equal(at(`{"tools":[{"${spelled}":1}]}`), "tools[0].__proto__", spelled);
  }
  assert.equal(at('{"logit_bias":{"__proto__":1}}'), "logit_bias.__proto__");
  const body =
    '{"model":"m","messages":[{"role":"user","content":"__proto__"}],"constructor":{"prototype":{"n":3}}}';
  const request = parseChatRequest(parseJsonObject(bytes(body)));
  assert.equal(request.n, undefined);
  assert.equal(request.messages[0].content, "__proto__");
  assert.equal(({} as Record<string, unknown>).n, undefined);
});

test("unknown fields are ignored", () => {
  assert.deepEqual(parseChatRequest({ ...chat, options: { a: 1 }, foo: [1] }), parseChatRequest(chat));
});

test("tools are bounded, named and unique, and a named choice must exist", () => {
  const tool = (name: string, parameters = {}) => ({ type: "function", function: { name, parameters } });
  assert.equal(chatRefusal({ tools: [tool("a b")] }).param, "tools[0].function.name");
  assert.equal(chatRefusal({ tools: [tool("a"), tool("a")] }).param, "tools[1].function.name");
  assert.equal(
    chatRefusal({ tools: [tool("a", { x: "y".repeat(LIMITS.toolCharacters) })] }).param,
    "tools[0]",
  );
  assert.equal(chatRefusal({ tools: Array(129).fill(tool("a")) }).param, "tools");
  assert.equal(chatRefusal({ tool_choice: "required" }).param, "tool_choice");
  const choice = { type: "function", function: { name: "b" } };
  assert.equal(chatRefusal({ tools: [tool("a")], tool_choice: choice }).param, "tool_choice.function.name");
});

test("what needs constrained decoding is refused by name, text formats are not", () => {
  const check = (fields: object) => {
    const body = { ...chat, ...fields };
    return refuseUnsupportedChat(parseChatRequest(body), body);
  };
  const tools = [{ type: "function", function: { name: "a" } }];
  assert.equal(
    refusal(() => check({ response_format: { type: "json_object" } })).param,
    "response_format.type",
  );
  assert.equal(refusal(() => check({ tools, tool_choice: "required" })).param, "tool_choice");
  assert.equal(refusal(() => check({ functions: [] })).param, "functions");
  check({ response_format: { type: "text" }, tools, tool_choice: "auto" });
});

test("a prompt has four forms and nothing else", () => {
  const prompt = (value: unknown) => parseCompletionRequest({ model: "m", prompt: value }).prompt;
  assert.deepEqual(prompt("a"), ["a"]);
  assert.deepEqual(prompt(["a", "b"]), ["a", "b"]);
  assert.deepEqual(prompt([1, 2]), [[1, 2]]);
  assert.deepEqual(prompt([[1], [2]]), [[1], [2]]);
  const param = (value: unknown) => refusal(() => prompt(value)).param;
  assert.equal(param(undefined), "prompt");
  assert.equal(param([]), "prompt");
  assert.equal(param([1, "a"]), "prompt[1]");
  assert.equal(param([1, -1]), "prompt[1]");
  assert.equal(param([[]]), "prompt[0]");
  assert.equal(param([["a"]]), "prompt[0][0]");
  assert.equal(param({}), "prompt");
  const many = { model: "m", prompt: Array(65).fill("a"), n: 2 };
  assert.equal(refusal(() => parseCompletionRequest(many)).param, "n");
});

test("a depth bomb, invalid UTF-8, an empty body and a non-object are 400", () => {
  for (const body of [
    "[".repeat(1e5),
    '{"a":'.repeat(1e5),
    `{"a":"${"[".repeat(1e5)}`,
    "",
    "[]",
    "null",
    "{",
  ]) {
    assert.equal(refusal(() => parseJsonObject(bytes(body))).code, "invalid_json");
  }
  assert.equal(
    refusal(() => parseJsonObject(Uint8Array.of(0x7b, 0x22, 0xff, 0x22, 0x7d))).code,
    "invalid_json",
  );
  assert.deepEqual(parseJsonObject(bytes(`{"a":"${"[".repeat(1e5)}\\""}`)), { a: "[".repeat(1e5) + '"' });
});

test("a body is refused when the limit is passed, before its end arrives", async () => {
  let pulled = 0;
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      pulled++;
      controller.enqueue(new Uint8Array(1000));
    },
  });
  const request = new Request("http://x", { method: "POST", body, duplex: "half" } as RequestInit);
  await assert.rejects(readBody(request, 10_000), { code: "body_too_large", status: 413 });
  assert.ok(pulled < 20);
});

test("any JSON value is parsed or refused as the client's fault, never a crash", () => {
  const keys = [
    ...Object.keys(parseChatRequest(chat)),
    "tools",
    "stop",
    "logit_bias",
    "n",
    "seed",
    "stream_options",
  ];
  fc.assert(
    fc.property(fc.constantFrom(...keys), fc.jsonValue({ maxDepth: 4 }), (key, value) => {
      for (const run of [
        () => parseChatRequest({ ...chat, [key]: value }),
        () => parseCompletionRequest({ model: "m", prompt: value, [key]: value }),
      ]) {
        try {
          run();
        } catch (error) {
          assert.ok(error instanceof ApiError, String(error));
          assert.ok(error.status >= 400 && error.status < 500);
        }
      }
    }),
    { numRuns: 500 },
  );
});

test("an internal fault shows neither its message nor its stack", () => {
  const error = toApiError(new Error("at 0x7fff1234 in /home/x"));
  assert.equal(error.status, 500);
  assert.doesNotMatch(JSON.stringify(error.body()), /0x|home/);
  assert.deepEqual(Object.keys(error.body().error).sort(), ["code", "message", "param", "type"]);
});
