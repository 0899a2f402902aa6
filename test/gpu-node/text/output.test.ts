import assert from "node:assert/strict";
import { test } from "node:test";
import { OutputParser, outputFormOf, type Piece } from "../../../gpu-node/text/parse/output.ts";
import { createTiktoken, parseRanks } from "../../../gpu-node/text/tokenizer/tiktoken.ts";
import { ids, mark, text } from "../server/harness.ts";

const BEGIN = mark("<|tool_calls_section_begin|>");
const END = mark("<|tool_calls_section_end|>");
const CALL = mark("<|tool_call_begin|>");
const ARGUMENTS = mark("<|tool_call_argument_begin|>");
const DONE = mark("<|tool_call_end|>");

function parse(tokens: number[], parser = new OutputParser(text.tokenizer, text.form)) {
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

test("without tools in the form, markers are shown as the text they are", () => {
  const parser = new OutputParser(text.tokenizer, { tools: undefined, think: undefined });
  assert.deepEqual(parse([BEGIN, ...ids("x")], parser), {
    content: "<|tool_calls_section_begin|>x",
    calls: [],
  });
});

test("a header that never ends does not grow without bound", () => {
  const parser = new OutputParser(text.tokenizer, text.form);
  for (const token of [BEGIN, CALL, ...ids("x".repeat(100_000))]) assert.deepEqual(parser.push(token), []);
  const [start] = parser.push(ARGUMENTS);
  assert.ok(start.kind === "tool_start" && start.name.length <= 2048);
});

test("reasoning is what lies between think tags, opened by the model or by the prompt", () => {
  const file = Array.from(
    { length: 256 },
    (_, byte) => `${Buffer.from([byte]).toString("base64")} ${byte}`,
  ).join("\n");
  const tokenizer = createTiktoken(parseRanks(file), {
    added_tokens_decoder: {
      256: { content: "<think>", special: false },
      257: { content: "</think>", special: false },
    },
  });
  const form = outputFormOf(tokenizer);
  const run = (tokens: number[], open: boolean) => {
    const parser = new OutputParser(tokenizer, form, open);
    return [...tokens.flatMap((token) => parser.push(token)), ...parser.finish()];
  };
  const [a, b] = ["a".charCodeAt(0), "b".charCodeAt(0)];
  const expected = [
    { kind: "reasoning", text: "a" },
    { kind: "content", text: "b" },
  ];
  assert.deepEqual(run([256, a, 257, b], false), expected);
  assert.deepEqual(run([a, 257, b], true), expected);
});
