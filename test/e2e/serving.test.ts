// The promises of serving, through `wrangler dev` and two real nodes.

import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, before, describe, test } from "node:test";
import OpenAI from "openai";
import { BUNDLED, MODEL, metrics, openPath, type Path, post, SKIP, whenIdle } from "./harness.ts";

const AT_ONCE = 64;
/** The end of the bundled model's answer; of another model, anything. */
const SUM = MODEL === BUNDLED ? /Answer: 42$/ : /^/;

interface NativeAnswer {
  success: boolean;
  result: { response: string; usage: { completion_tokens: number } };
}

describe("serving", { skip: SKIP }, () => {
  let path: Path;
  let client: OpenAI;

  before(async () => {
    path = await openPath(2);
    client = new OpenAI({ baseURL: `${path.url}/v1`, apiKey: path.secrets.apiKey, maxRetries: 0 });
  });
  after(async () => {
    await path.close();
  });

  const ask = (content: string) => [{ role: "user" as const, content }];

  async function assertNothingHeld(): Promise<void> {
    for (const node of path.nodes) {
      const now = await whenIdle(node.url);
      assert.equal(now.requests_running + now.requests_waiting, 0, "requests left");
      assert.equal(now.pages_owned, 0, "pages still owned");
      assert.equal(now.pages_free + now.pages_cached, now.pages_total, "pages lost");
      assert.equal(now.slots_free, 64, "slots lost");
    }
  }

  test("the openai client gets a whole answer and the same text as a stream", async () => {
    const request = { model: path.model, messages: ask("What is 12 + 30?"), max_tokens: 48, temperature: 0 };
    const whole = await client.chat.completions.create(request);
    assert.ok(whole.usage && whole.usage.completion_tokens > 0);
    assert.ok(["stop", "length"].includes(whole.choices[0].finish_reason));
    assert.match(whole.choices[0].message.content ?? "", SUM);
    const streamed = client.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
    assert.equal(await streamed.finalContent(), whole.choices[0].message.content);
    const { usage } = await streamed.finalChatCompletion();
    assert.equal(usage?.completion_tokens, whole.usage.completion_tokens);
  });

  test("Workers AI runs give the same text in both forms", async () => {
    const input = { prompt: "What is 12 + 30?", max_tokens: 48, temperature: 0 };
    const url = `${path.native}/run/${path.model}`;
    const whole = (await (await post(path, url, JSON.stringify(input))).json()) as NativeAnswer;
    assert.equal(whole.success, true);
    assert.match(whole.result.response, SUM);
    const text = await (await post(path, url, JSON.stringify({ ...input, stream: true }))).text();
    const data = [...text.matchAll(/^data: (.*)$/gm)].map((match) => match[1]);
    assert.equal(data.pop(), "[DONE]");
    const frames = data.map((frame) => JSON.parse(frame));
    assert.equal(frames.map((frame) => frame.response).join(""), whole.result.response);
    assert.equal(frames.at(-1).usage.completion_tokens, whole.result.usage.completion_tokens);
  });

  test(`${AT_ONCE} requests at once all finish, and nothing is held afterwards`, async () => {
    const answers = await Promise.all(
      Array.from({ length: AT_ONCE }, async (_, i) => {
        const request = { model: path.model, messages: ask(`${i}: tell me a story`), max_tokens: 48 };
        if (i % 2 === 0) return (await client.chat.completions.create(request)).choices[0].finish_reason;
        let reason: string | null = null;
        for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
          reason = chunk.choices[0]?.finish_reason ?? reason;
        }
        return reason;
      }),
    );
    assert.ok(
      answers.every((reason) => reason === "stop" || reason === "length"),
      answers.join(),
    );
    await assertNothingHeld();
  });

  test(`of ${AT_ONCE} requests many leave at random moments: the rest finish, and nothing is held`, async (t) => {
    const seed = Number(process.env.EDGEWISE_TEST_SEED ?? randomInt(2 ** 31));
    t.diagnostic(`EDGEWISE_TEST_SEED=${seed}`);
    const random = randomFrom(seed);
    const outcomes = await Promise.all(
      Array.from({ length: AT_ONCE }, async (_, i) => {
        const stays = i % 4 === 0;
        const body = {
          model: path.model,
          messages: ask(`${i}: go on`),
          max_tokens: stays ? 32 : 600,
          stream: i % 3 > 0,
        };
        const leave = new AbortController();
        if (!stays) setTimeout(() => leave.abort(), random() * 2_500);
        try {
          const url = `${path.url}/v1/chat/completions`;
          const response = await post(path, url, JSON.stringify({ ...body, ignore_eos: true }), leave.signal);
          const text = await response.text();
          return text.includes('"finish_reason":"length"') ? "finished" : `odd answer: ${text.slice(-300)}`;
        } catch {
          return stays ? "lost" : "left";
        }
      }),
    );
    outcomes.forEach((outcome, i) => {
      if (i % 4 === 0) assert.equal(outcome, "finished");
      else assert.ok(outcome === "left" || outcome === "finished", outcome);
    });
    assert.ok(outcomes.includes("left"));
    await assertNothingHeld();
  });

  test("a client that leaves a long stream stops its node long before the end", async () => {
    const before = await Promise.all(
      path.nodes.map(async (node) => (await metrics(node.url)).engine_generated_tokens_total),
    );
    const leave = new AbortController();
    const body = {
      model: path.model,
      messages: ask("a long story"),
      max_tokens: 8_000,
      stream: true,
      ignore_eos: true,
    };
    const response = await post(path, `${path.url}/v1/chat/completions`, JSON.stringify(body), leave.signal);
    const reader = response.body!.getReader();
    await reader.read();
    leave.abort();
    await reader.read().catch(() => {});
    await assertNothingHeld();
    let generated = 0;
    for (const [i, node] of path.nodes.entries()) {
      generated += (await metrics(node.url)).engine_generated_tokens_total - before[i];
    }
    assert.ok(generated < 8_000, `${generated} tokens were generated for nobody`);
  });

  test("the second turn of a conversation reports cached tokens", async () => {
    const system = `You know these facts. ${Array.from({ length: 40 }, (_, i) => `Box ${i} holds ${i * 7} coins.`).join(" ")}`;
    const messages: OpenAI.ChatCompletionMessageParam[] = [
      { role: "system", content: system },
      ...ask("How many coins are in box 3?"),
    ];
    const first = await client.chat.completions.create({ model: path.model, messages, max_tokens: 16 });
    assert.equal(first.usage?.prompt_tokens_details?.cached_tokens, 0);
    messages.push({ role: "assistant", content: "21" }, ...ask("And in box 4?"));
    const second = await client.chat.completions.create({ model: path.model, messages, max_tokens: 16 });
    const cached = second.usage?.prompt_tokens_details?.cached_tokens ?? 0;
    assert.ok(cached >= 64 && cached <= (first.usage?.prompt_tokens ?? 0), `${cached} cached`);
  });

  test("a session named by header stays on one node, and sessions use both nodes", async () => {
    const used = new Set<string | null>();
    for (let session = 0; session < 8; session++) {
      const places = new Set<string | null>();
      for (let turn = 0; turn < 3; turn++) {
        const { response } = await client.chat.completions
          .create(
            { model: path.model, messages: ask(`turn ${turn}`), max_tokens: 4 },
            { headers: { "x-session-affinity": `session-${session}` } },
          )
          .withResponse();
        places.add(response.headers.get("x-edgewise-node"));
      }
      assert.equal(places.size, 1, [...places].join());
      used.add([...places][0]);
    }
    assert.deepEqual([...used].sort(), ["a", "b"]);
  });
});

/** mulberry32: a small seeded generator of numbers in [0, 1). */
function randomFrom(seed: number): () => number {
  let state = seed | 0;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
