import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { outputFormOf } from "../../../gpu-node/text/parse/form.ts";
import { OutputParser, type Piece } from "../../../gpu-node/text/parse/output.ts";
import { createTiktoken, parseRanks } from "../../../gpu-node/text/tokenizer/tiktoken.ts";
import { ids, mark, text } from "../server/harness.ts";

const BEGIN = mark("<|tool_calls_section_begin|>");
const END = mark("<|tool_calls_section_end|>");
const CALL = mark("<|tool_call_begin|>");
const ARGUMENTS = mark("<|tool_call_argument_begin|>");
const DONE = mark("<|tool_call_end|>");

/** A byte vocabulary with the given added tokens from id 256 on. */
function bytesAnd(...added: string[]) {
  const file = Array.from(
    { length: 256 },
    (_, byte) => `${Buffer.from([byte]).toString("base64")} ${byte}`,
  ).join("\n");
  const entries = added.map((content, i) => [256 + i, { content, special: false }]);
  return createTiktoken(parseRanks(file), { added_tokens_decoder: Object.fromEntries(entries) });
}

function parse(tokens: number[], parser = new OutputParser(text.tokenizer, { form: text.form })) {
  const pieces: Piece[] = [...tokens.flatMap((token) => parser.push(token)), ...parser.finish()];
  let content = "";
  const calls: { id: string; name: string; arguments: string }[] = [];
  for (const piece of pieces) {
    if (piece.kind === "content") content += piece.text;
    if (piece.kind === "tool_start") calls[piece.index] = { id: piece.id, name: piece.name, arguments: "" };
    if (piece.kind === "tool_arguments") calls[piece.index].arguments += piece.text;
  }
  return { content, calls };
}

const call = (header: string, json: string) => [CALL, ...ids(header), ARGUMENTS, ...ids(json), DONE];

test("Kimi's tool calls: ids as the model wrote them, arguments as text, no marker in the content", () => {
  const out = parse([
    ...ids("Looking. "),
    BEGIN,
    ...call("functions.get_weather:0", '{"city": "Köln 😀", "days": 1.0}'),
    ...call("functions.now:1", "{}"),
    END,
    ...ids("ignored"),
  ]);
  assert.deepEqual(out, {
    content: "Looking. ",
    calls: [
      { id: "functions.get_weather:0", name: "get_weather", arguments: '{"city": "Köln 😀", "days": 1.0}' },
      { id: "functions.now:1", name: "now", arguments: "{}" },
    ],
  });
});

test("a call without arguments has an empty object, with or without the argument marker", () => {
  for (const tokens of [call("functions.f:0", ""), [CALL, ...ids("functions.f:0"), DONE]]) {
    assert.deepEqual(parse([BEGIN, ...tokens, END]).calls, [
      { id: "functions.f:0", name: "f", arguments: "{}" },
    ]);
  }
});

test("headers that are not in form still give a name and ids that differ", () => {
  const { calls } = parse([
    BEGIN,
    ...call("f", "{}"),
    ...call("functions.g", "{}"),
    ...call("functions.g:1", "{}"),
    ...call("", "{}"),
  ]);
  assert.deepEqual(
    calls.map(({ name }) => name),
    ["f", "g", "g"],
  );
  assert.equal(new Set(calls.map(({ id }) => id)).size, 3);
});

test("a call cut off by the token limit keeps what came", () => {
  const tokens = [BEGIN, CALL, ...ids("functions.f:0"), ARGUMENTS, ...ids('{"a": 1')];
  assert.deepEqual(parse(tokens).calls, [{ id: "functions.f:0", name: "f", arguments: '{"a": 1' }]);
});

test("markers spelled in ordinary tokens are text", () => {
  const spelled = "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0";
  assert.deepEqual(parse(ids(spelled)), { content: spelled, calls: [] });
});

test("without tools in the form, markers are dropped: sent back in the history they would be refused", () => {
  const parser = new OutputParser(text.tokenizer, { form: { tools: undefined, think: undefined } });
  assert.deepEqual(parse([BEGIN, CALL, ...ids("x"), DONE], parser), { content: "x", calls: [] });
});

test("a header that never ends does not grow without bound", () => {
  const parser = new OutputParser(text.tokenizer, { form: text.form });
  for (const token of [BEGIN, CALL, ...Array(100_000).fill(ids("x")[0])])
    assert.deepEqual(parser.push(token), []);
  const [start] = parser.push(ARGUMENTS);
  assert.ok(start.kind === "tool_start" && start.name.length <= 2048);
});

test("reasoning is what lies between think tags, opened by the model or by the prompt, white space at tags left out", () => {
  const tokenizer = bytesAnd("<think>", "</think>");
  const form = outputFormOf(tokenizer);
  const run = (tokens: number[], reasoning: boolean) => {
    const parser = new OutputParser(tokenizer, { form, reasoning });
    return [...tokens.flatMap((token) => parser.push(token)), ...parser.finish()];
  };
  const [a, b, line] = [..."ab\n"].map((character) => character.charCodeAt(0));
  const expected = [
    { kind: "reasoning", text: "a" },
    { kind: "content", text: "b" },
    { kind: "content", text: "\n" },
  ];
  assert.deepEqual(run([256, line, a, 257, line, line, b, line], false), expected);
  assert.deepEqual(run([line, a, 257, b, line], true), expected);
});

test("calls in blocks: Qwen's JSON and GLM's pairs, typed by the tool's schema", () => {
  const tokenizer = bytesAnd(
    "<tool_call>",
    "</tool_call>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
  );
  const form = outputFormOf(tokenizer);
  const parameters = { properties: { zip: { type: "string" }, days: { type: "integer" } } };
  const tools = [
    {
      type: "function" as const,
      function: { name: "f", description: undefined, parameters, strict: undefined },
    },
  ];
  const run = (...parts: (string | number)[]) =>
    parse(
      parts.flatMap((part) => (typeof part === "string" ? tokenizer.encodeText(part) : [part])),
      new OutputParser(tokenizer, { form, tools }),
    );
  const shape = ({ content, calls }: ReturnType<typeof parse>) => [
    content,
    ...calls.map((call) => `${call.name} ${call.arguments}`),
  ];
  const [OPEN, CLOSE, KEY, KEY_END, VALUE, VALUE_END] = [256, 257, 258, 259, 260, 261];
  const qwen = '\n{"name": "f", "arguments": {"zip": "01", "days": 2}}\n';
  const both = run("Look: ", OPEN, qwen, CLOSE, "\n", OPEN, '{"name": "g"}', CLOSE);
  assert.deepEqual(shape(both), ["Look: ", 'f {"zip":"01","days":2}', "g {}"]);
  assert.equal(new Set(both.calls.map(({ id }) => id)).size, 2);
  const glm = [
    OPEN,
    "f\n",
    KEY,
    "zip",
    KEY_END,
    "\n",
    VALUE,
    " 01 ",
    VALUE_END,
    KEY,
    "days",
    KEY_END,
    VALUE,
    "2",
    VALUE_END,
    CLOSE,
  ];
  assert.deepEqual(shape(run(...glm)), ["", 'f {"zip":" 01 ","days":2}']);
  assert.deepEqual(shape(run(OPEN, "now", CLOSE)), ["", "now {}"]);
  assert.deepEqual(shape(run(OPEN, '{"name": "f", "argu')), ['<tool_call>{"name": "f", "argu']);
  assert.deepEqual(shape(run(OPEN, "f", KEY, "__proto__", KEY_END, VALUE, "1", VALUE_END, CLOSE)), [
    "",
    'f {"__proto__":1}',
  ]);
});

test("whatever tokens come, calls have rising indices, start before their arguments and have ids of their own", () => {
  const token = fc.oneof(
    fc.constantFrom(BEGIN, END, CALL, ARGUMENTS, DONE),
    fc.constantFrom(...ids("functions.f:0 {}"), 4095, 5000, 130),
  );
  fc.assert(
    fc.property(fc.array(token, { maxLength: 40 }), (tokens) => {
      const parser = new OutputParser(text.tokenizer, { form: text.form });
      const pieces = [...tokens.flatMap((id) => parser.push(id)), ...parser.finish()];
      const seen = new Set<string>();
      let last = -1;
      const filled = new Set<number>();
      for (const piece of pieces) {
        if (piece.kind === "tool_start") {
          assert.equal(piece.index, ++last);
          assert.ok(piece.name !== "" && !seen.has(piece.id));
          seen.add(piece.id);
        }
        if (piece.kind === "tool_arguments") {
          assert.equal(piece.index, last);
          filled.add(piece.index);
        }
      }
      assert.equal(filled.size, last + 1, "no call is without argument text");
      assert.equal(parser.toolCalls, last + 1);
    }),
    { numRuns: 1000 },
  );
});
