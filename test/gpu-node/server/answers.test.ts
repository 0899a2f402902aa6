import assert from "node:assert/strict";
import { test } from "node:test";
import type OpenAI from "openai";
import { END, events, harness, ids, mark, says } from "./harness.ts";

const chat = { model: "nano", messages: [{ role: "user", content: "hi" }] };
const json = async (response: Response) => (await response.json()) as OpenAI.ChatCompletion;
/** The chunks of a stream that ended well. */
async function chunks(response: Response): Promise<OpenAI.ChatCompletionChunk[]> {
  const all = await events(response);
  assert.equal(all.pop(), "[DONE]");
  return all as unknown as OpenAI.ChatCompletionChunk[];
}

test("a stop string over several tokens ends the answer, aborts the engine and bounds usage", async () => {
  const h = await harness(says("one two THE END and much more"));
  const answer = await json(await h.post("/v1/chat/completions", { ...chat, stop: ["E EN"] }));
  assert.deepEqual(answer.choices[0], {
    index: 0,
    message: { role: "assistant", content: "one two TH", refusal: null },
    logprobs: null,
    finish_reason: "stop",
  });
  const shown = ids("one two THE END and much more");
  const whole = (count: number) =>
    Buffer.concat(
      shown.slice(0, count).map((id) => Buffer.from(h.node.text.tokenizer.bytes.of(id))),
    ).toString();
  const needed = shown.findIndex((_, i) => whole(i + 1).includes("E EN")) + 1;
  assert.equal(answer.usage!.completion_tokens, needed);
  assert.equal(h.engine.live, 0);
});

test("a streamed answer equals the whole one, whatever the tokens are grouped into", async () => {
  const tokens = [...ids("Grüße, 😀 and a STOP here"), END];
  for (const size of [1, 3, 100]) {
    const groups = Array.from({ length: Math.ceil(tokens.length / size) }, (_, i) =>
      tokens.slice(i * size, i * size + size),
    );
    const h = await harness({ groups });
    const body = { ...chat, stop: "STOP" };
    const whole = await json(await h.post("/v1/chat/completions", body));
    const parts = await chunks(await h.post("/v1/chat/completions", { ...body, stream: true }));
    const text = parts.map(({ choices }) => choices[0].delta.content ?? "").join("");
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(text, "Grüße, 😀 and a ");
  }
});

test("every choice opens with the role, finishes once, and usage comes last without choices", async () => {
  const h = await harness((_, index) => says(`answer ${index}`));
  const body = { ...chat, n: 3, stream: true, stream_options: { include_usage: true } };
  const parts = await chunks(await h.post("/v1/chat/completions", body));
  const last = parts.pop()!;
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage!.prompt_tokens, h.engine.requests[0].prompt.length);
  for (const part of parts) assert.equal(part.usage, null);
  for (let index = 0; index < 3; index++) {
    const mine = parts.flatMap(({ choices }) => choices).filter((c) => c.index === index);
    assert.equal(mine[0].delta.role, "assistant");
    assert.equal(mine.filter(({ delta }) => delta.role !== undefined).length, 1);
    assert.equal(mine.filter(({ finish_reason }) => finish_reason !== null).length, 1);
  }
  const seeds = h.engine.requests.map(({ sampling }) => `${sampling.seedLow} ${sampling.seedHigh}`);
  assert.equal(new Set(seeds).size, 3);
});

test("the same seed gives the same engine seeds, another seed others", async () => {
  const h = await harness(says("x"));
  for (const seed of [7, 7, -8]) await h.post("/v1/chat/completions", { ...chat, seed, n: 2 });
  const seeds = h.engine.requests.map(({ sampling }) => [sampling.seedLow, sampling.seedHigh]);
  assert.deepEqual(seeds.slice(0, 2), seeds.slice(2, 4));
  assert.notDeepEqual(seeds[0], seeds[1]);
  assert.deepEqual(seeds[4], [-8, -1]);
});

test("fields reach the engine; what is left out comes from generation_config.json", async () => {
  const h = await harness(says("x"), { maxModelLen: 200 });
  await h.post("/v1/chat/completions", {
    ...chat,
    temperature: 0.5,
    top_p: 0.9,
    top_k: 40,
    min_p: 0.1,
    repetition_penalty: 1.2,
    presence_penalty: -1,
    frequency_penalty: 1,
    logit_bias: { "5": -100 },
    max_completion_tokens: 7,
    min_tokens: 3,
    logprobs: true,
    top_logprobs: 4,
    stop_token_ids: [9],
  });
  const [request] = h.engine.requests;
  const { seedLow, seedHigh, ...sampling } = request.sampling;
  assert.ok(Number.isInteger(seedLow) && Number.isInteger(seedHigh));
  assert.deepEqual(sampling, {
    temperature: 0.5,
    topP: 0.9,
    topK: 40,
    minP: 0.1,
    repetitionPenalty: 1.2,
    presencePenalty: -1,
    frequencyPenalty: 1,
    logitBias: [[5, -100]],
    topLogprobs: 4,
  });
  assert.deepEqual([request.maxTokens, request.minTokens, request.salt], [7, 3, "acc"]);
  assert.deepEqual(request.stopTokens, [...h.node.text.eos, 9]);

  await h.post("/v1/chat/completions", { ...chat, temperature: 1e-30, top_p: 0, ignore_eos: true });
  const second = h.engine.requests[1];
  assert.deepEqual([second.sampling.temperature, second.sampling.topP, second.sampling.topK], [0, 1, 1]);
  assert.deepEqual(second.stopTokens, []);
  assert.equal(second.maxTokens, 200 - second.prompt.length);

  await h.post("/v1/chat/completions", chat);
  assert.equal(h.engine.requests[2].sampling.temperature, 0, "do_sample is false in the bundled model");
});

test("log probabilities cover the shown tokens only: neither the end token nor a stop string", async () => {
  const h = await harness(says("a b STOP c"));
  const body = { ...chat, logprobs: true, top_logprobs: 2, stop: " STOP" };
  const answer = await json(await h.post("/v1/chat/completions", body));
  const content = answer.choices[0].logprobs!.content!;
  assert.equal(content.map(({ token }) => token).join(""), "a b");
  assert.ok(content.every(({ top_logprobs }) => top_logprobs.length === 2));
  const plain = await json(
    await (await harness(says("a b"))).post("/v1/chat/completions", { ...chat, logprobs: true }),
  );
  const all = plain.choices[0].logprobs!.content!;
  assert.equal(all.map(({ token }) => token).join(""), "a b");
  const parts = await chunks(await h.post("/v1/chat/completions", { ...body, stream: true }));
  const streamed = parts.flatMap(({ choices }) => choices[0].logprobs?.content ?? []);
  assert.deepEqual(
    streamed.map(({ token }) => token),
    content.map(({ token }) => token),
  );
});

test("cached tokens are reported", async () => {
  const h = await harness({ ...says("x"), cachedTokens: 64 });
  const { usage } = await json(await h.post("/v1/chat/completions", chat));
  assert.deepEqual(usage!.prompt_tokens_details, { cached_tokens: 64 });
});

test("an answer that ran into the limit says length; no text at all is an empty string", async () => {
  const h = await harness({ groups: [[END]], reason: "length" });
  const answer = await json(await h.post("/v1/chat/completions", chat));
  assert.equal(answer.choices[0].finish_reason, "length");
  assert.equal(answer.choices[0].message.content, "");
});

test("completions: prompts times n choices in OpenAI's order, prompts counted once each", async () => {
  const h = await harness((prompt, index) => says(`${prompt}${index}`));
  const answer = await json(await h.post("/v1/completions", { model: "nano", prompt: ["aa", "b"], n: 2 }));
  const texts = (answer.choices as unknown as { index: number; text: string }[]).map(({ text }) => text);
  assert.deepEqual(texts, ["aa0", "aa1", "b2", "b3"]);
  const lengths = h.engine.requests.map(({ prompt }) => prompt.length);
  assert.equal(answer.usage!.prompt_tokens, lengths[0] + lengths[2]);
});

test("completions take token ids and refuse those that the model lacks", async () => {
  const h = await harness(says("x"));
  await h.post("/v1/completions", { model: "nano", prompt: [[1, 2, 3]] });
  assert.deepEqual([...h.engine.requests[0].prompt], [1, 2, 3]);
  const refused = await h.post("/v1/completions", { model: "nano", prompt: [1, 4096] });
  assert.equal(refused.status, 400);
  assert.equal(((await refused.json()) as { error: { param: string } }).error.param, "prompt[1]");
});

test("tool calls stream in the form strict clients read", async () => {
  const tokens = [
    mark("<|tool_calls_section_begin|>"),
    mark("<|tool_call_begin|>"),
    ...ids("functions.get:0"),
    mark("<|tool_call_argument_begin|>"),
    ...ids('{"a": [1, 2]}'),
    mark("<|tool_call_end|>"),
    mark("<|tool_calls_section_end|>"),
    END,
  ];
  const h = await harness({ groups: tokens.map((id) => [id]) });
  const tools = [{ type: "function", function: { name: "get", parameters: { type: "object" } } }];
  const parts = await chunks(await h.post("/v1/chat/completions", { ...chat, tools, stream: true }));
  const deltas = parts.flatMap(({ choices }) => choices[0].delta.tool_calls ?? []);
  assert.deepEqual(
    [deltas[0].id, deltas[0].type, deltas[0].function!.name],
    ["functions.get:0", "function", "get"],
  );
  assert.ok(deltas.every(({ index, function: fn }) => index === 0 && typeof fn!.arguments === "string"));
  assert.equal(deltas.map((d) => d.function!.arguments).join(""), '{"a": [1, 2]}');
  const finish = parts.map(({ choices }) => choices[0].finish_reason).filter(Boolean);
  assert.deepEqual(finish, ["tool_calls"]);
  const none = await json(await h.post("/v1/chat/completions", { ...chat, tools, tool_choice: "none" }));
  assert.equal(none.choices[0].message.tool_calls, undefined);
});
