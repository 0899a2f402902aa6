import assert from "node:assert/strict";
import { cpSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { parseChatRequest } from "../../../gpu-node/contract/chat.ts";
import { chatPrompt, loadModelText } from "../../../gpu-node/text/model-text.ts";
import { createChatTemplate, loadChatTemplate } from "../../../gpu-node/text/template/chat-template.ts";
import { templateMessages } from "../../../gpu-node/text/template/variables.ts";
import { NANO, text } from "../server/harness.ts";

const dir = mkdtempSync(join(tmpdir(), "edgewise-"));
after(() => rmSync(dir, { recursive: true }));

const rules = { policy: "refuse", maxTokens: 1e6 } as const;
const input = (tools?: unknown[]) => ({ messages: [], tools, variables: {} });

test("chat_template.jinja comes before tokenizer_config.json; of named templates tool_use serves requests with tools", () => {
  const named = [
    { name: "default", template: "plain" },
    { name: "tool_use", template: "tooled" },
  ];
  const template = loadChatTemplate(dir, { chat_template: named })!;
  assert.deepEqual([template.render(input()), template.render(input([{}]))], ["plain", "tooled"]);
  assert.equal(loadChatTemplate(dir, {}), undefined);
  writeFileSync(join(dir, "chat_template.jinja"), "from the file");
  assert.equal(loadChatTemplate(dir, { chat_template: named })!.render(input()), "from the file");
});

test("what a template raises is a 400 with its message; one that cannot be parsed is reported when it is loaded", () => {
  const template = createChatTemplate("{{ raise_exception('roles must alternate') }}");
  assert.throws(() => template.render(input()), {
    code: "template_error",
    status: 400,
    message: /roles must alternate/,
  });
  assert.throws(() => createChatTemplate("{% for %}"), { name: "TokenizerFileError" });
});

test("a model without a template refuses chat and names the other route", () => {
  const request = parseChatRequest({ model: "m", messages: [{ role: "user", content: "x" }] });
  assert.throws(() => chatPrompt({ ...text, template: undefined }, request, rules), {
    code: "unsupported_value",
    message: /\/v1\/completions/,
  });
});

test("content parts and argument text reach a template in the form that it takes", () => {
  const { messages } = parseChatRequest({
    model: "m",
    messages: [
      {
        role: "developer",
        content: [
          { type: "text", text: "a" },
          { type: "text", text: "b" },
        ],
      },
      { role: "assistant", tool_calls: [{ id: "i", function: { name: "f", arguments: '{"x": 1.0}' } }] },
    ],
  });
  const as = (takesParts: boolean, takesArgumentText: boolean) =>
    templateMessages(messages, { takesParts, takesArgumentText }, (value) => value);
  const [system, call] = as(false, false);
  assert.deepEqual([system.role, system.content], ["system", "a\nb"]);
  assert.deepEqual((call.tool_calls as { function: unknown }[])[0].function, {
    name: "f",
    arguments: { x: 1 },
  });
  const [parts, textual] = as(true, true);
  assert.deepEqual(parts.content, [
    { type: "text", text: "a" },
    { type: "text", text: "b" },
  ]);
  assert.deepEqual((textual.tool_calls as { function: unknown }[])[0].function, {
    name: "f",
    arguments: '{"x": 1.0}',
  });
});

test("the bundled model's prompt is the conversation in Kimi's form", () => {
  const request = parseChatRequest({
    model: "m",
    messages: [
      { role: "system", content: "S" },
      { role: "user", content: "U" },
    ],
  });
  const shown = Array.from(chatPrompt(text, request, rules), (id) => {
    const control = text.tokenizer.control.byId.get(id)?.content;
    return control ?? Buffer.from(text.tokenizer.bytes.of(id)).toString();
  }).join("");
  assert.equal(
    shown,
    "<|im_system|>system<|im_middle|>S<|im_end|><|im_user|>user<|im_middle|>U<|im_end|><|im_assistant|>assistant<|im_middle|>",
  );
});

test("end tokens come from generation_config.json, else config.json, else the tokenizer; files that lack and defaults that cannot be are named", () => {
  const model = join(dir, "model");
  cpSync(NANO, model, { recursive: true, filter: (path) => !path.includes("train") });
  const write = (name: string, value: unknown) => writeFileSync(join(model, name), JSON.stringify(value));
  write("config.json", { eos_token_id: 7 });
  write("generation_config.json", { eos_token_id: [5, 6], temperature: 0.6, top_k: 20, max_new_tokens: 9 });
  const first = loadModelText(model);
  assert.deepEqual(first.eos, [5, 6]);
  assert.deepEqual(first.defaults, {
    temperature: 0.6,
    topP: 1,
    topK: 20,
    minP: 0,
    repetitionPenalty: 1,
    maxTokens: 9,
  });
  for (const [key, value] of [
    ["temperature", -1],
    ["top_p", 5],
    ["min_p", 1.5],
    ["repetition_penalty", 0],
    ["repetition_penalty", 1e-50],
    ["repetition_penalty", 100],
    ["max_new_tokens", 0],
  ] as const) {
    write("generation_config.json", { [key]: value });
    const message = new RegExp(`generation_config.json: ${key} is ${value}, it must be `);
    assert.throws(() => loadModelText(model), { name: "TokenizerFileError", message });
  }
  write("generation_config.json", {});
  assert.deepEqual(loadModelText(model).eos, [7]);
  write("config.json", { text_config: { eos_token_id: 8 } });
  assert.deepEqual(loadModelText(model).eos, [8]);
  write("config.json", {});
  assert.deepEqual(loadModelText(model).eos, [text.tokenizer.control.byContent.get("<|im_end|>")!.id]);
  writeFileSync(join(model, "tokenizer_config.json"), "{");
  assert.throws(() => loadModelText(model), {
    name: "TokenizerFileError",
    message: /tokenizer_config.json is not JSON/,
  });
  rmSync(join(model, "tokenizer.json"));
  rmSync(join(model, "tokenizer_config.json"));
  assert.throws(() => loadModelText(model), { message: /has no tokenizer.json/ });
});
