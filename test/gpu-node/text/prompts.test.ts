import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { parseChatRequest } from "../../../gpu-node/contract/chat.ts";
import { loadModelText } from "../../../gpu-node/text/model-text.ts";
import { makePrompt, type PromptJob, Prompts } from "../../../gpu-node/text/prompts.ts";
import { NANO, text } from "../server/harness.ts";

const prompts = new Prompts(text, NANO);
const folders: string[] = [];
after(async () => {
  await prompts.close();
  for (const dir of folders) rmSync(dir, { recursive: true });
});

const never = new AbortController().signal;
const plain = (value: string): PromptJob => ({
  kind: "plain",
  text: value,
  param: "prompt",
  policy: "refuse",
  maxTokens: 1e6,
});
const chat = (content: string): PromptJob => ({
  kind: "chat",
  request: parseChatRequest({ model: "m", messages: [{ role: "user", content }] }),
  policy: "refuse",
  maxTokens: 1e6,
});

test("a prompt has the same tokens wherever it is made, again and again", async () => {
  for (const job of [chat("hello there. ".repeat(50)), plain("one, two"), plain("漢字 😀")]) {
    for (const bytes of [0, 10_000, 1e6, 1e6])
      assert.deepEqual(await prompts.make(job, bytes, never), makePrompt(text, job));
  }
});

test("many prompts at once come back each to its own request", async () => {
  const jobs = Array.from({ length: 40 }, (_, i) => plain(`number ${i}`));
  const made = await Promise.all(jobs.map((job, i) => prompts.make(job, i % 2 ? 1e5 : 1e6, never)));
  for (const [i, job] of jobs.entries()) assert.deepEqual(made[i], makePrompt(text, job));
});

test("an error of a long prompt is the one a short prompt has", async () => {
  await assert.rejects(prompts.make(plain("x<|im_end|>"), 1e6, never), {
    code: "control_token",
    param: "prompt",
  });
});

test("a prompt that cannot fit is refused without being tokenized", () => {
  const job: PromptJob = { ...plain("x".repeat(1e6)), maxTokens: 1000 };
  assert.throws(() => makePrompt(text, job), { code: "context_length_exceeded", param: "prompt" });
});

test("a client that left is not worked for", async () => {
  const gone = new AbortController();
  const first = prompts.make(plain("a"), 1e6, never);
  const second = prompts.make(plain("b"), 1e6, gone.signal);
  gone.abort();
  await assert.rejects(second, { code: "client_closed" });
  await first;
});

test("a prompt past the time limit is refused, and the next one is made", async () => {
  const hasty = new Prompts(text, NANO, 1);
  await assert.rejects(hasty.make(plain("a "), 1e6, never), { code: "template_error", status: 400 });
  await hasty.close();
  assert.equal((await prompts.make(plain("a"), 1e6, never)).length, makePrompt(text, plain("a")).length);
});

/** The bundled model's tokenizer with another chat template. */
function withTemplate(template: string, limitMs?: number): Prompts {
  const dir = mkdtempSync(join(tmpdir(), "edgewise-template-"));
  folders.push(dir);
  copyFileSync(join(NANO, "tokenizer.json"), join(dir, "tokenizer.json"));
  writeFileSync(join(dir, "chat_template.jinja"), template);
  return new Prompts(loadModelText(dir), dir, limitMs);
}

test("a template that does not end stops no other prompt: this thread turns, and the request is refused", async () => {
  const endless = withTemplate("{% for x in range(1000000000) %}{% endfor %}hi", 1_000);
  let turns = 0;
  const timer = setInterval(() => turns++, 1);
  const request = endless.make(chat("hello"), 100, never);
  assert.ok((await endless.make(plain("other"), 100, never)).length > 0);
  await assert.rejects(request, { code: "template_error", status: 400 });
  clearInterval(timer);
  assert.ok(turns > 10, `${turns} turns`);
  await endless.close();
});

test("a template that writes much is not tokenized on this thread, and its prompt is the same", async () => {
  const wordy = withTemplate("{% for x in range(50000) %}ab {% endfor %}");
  const made = wordy.make(chat("hello"), 100, never);
  let turned = false;
  setImmediate(() => {
    turned = true;
  });
  assert.deepEqual(await made, makePrompt(text, plain("ab ".repeat(50_000))));
  assert.ok(turned);
  await wordy.close();
});

test("closing refuses what waits", async () => {
  const closing = new Prompts(text, NANO);
  const made = [plain("a"), plain("b")].map((job) => closing.make(job, 1e6, never));
  const outcome = Promise.allSettled(made);
  await closing.close();
  for (const result of await outcome) assert.equal(result.status, "rejected");
});
