import assert from "node:assert/strict";
import { test } from "node:test";
import type { EngineEvent } from "../../../gpu-node/contract/engine.ts";
import { EventStream } from "../../../gpu-node/engine/event-stream.ts";

const tokens = (...ids: number[]): EngineEvent => ({ type: "tokens", tokens: ids });
const finish: EngineEvent = {
  type: "finish",
  reason: "stop",
  usage: { promptTokens: 1, completionTokens: 3, cachedTokens: 0 },
};

test("a slow reader gets the tokens that piled up in one event, in order, then the end", async () => {
  const stream = new EventStream(() => {});
  for (const id of [1, 2, 3]) {
    stream.push({ type: "tokens", tokens: [id], logprobs: [{ logprob: -id, top: [] }] });
  }
  stream.push(finish);
  const seen: EngineEvent[] = [];
  for await (const event of stream) seen.push(event);
  const logprobs = [-1, -2, -3].map((logprob) => ({ logprob, top: [] }));
  assert.deepEqual(seen, [{ type: "tokens", tokens: [1, 2, 3], logprobs }, finish]);
});

test("a waiting reader gets each event as it comes", async () => {
  const stream = new EventStream(() => {});
  const first = stream.next();
  stream.push(tokens(1));
  stream.push(tokens(2));
  assert.deepEqual((await first).value, tokens(1));
  assert.deepEqual((await stream.next()).value, tokens(2));
});

test("nothing comes after the end", async () => {
  const stream = new EventStream(() => {});
  stream.push(finish);
  stream.push(tokens(9));
  stream.push({ type: "error", code: "engine_failed", message: "", retryable: true });
  assert.deepEqual((await stream.next()).value, finish);
  assert.equal((await stream.next()).done, true);
});

test("leaving before the end is told once, leaving after it is not", async () => {
  let left = 0;
  const early = new EventStream(() => left++);
  early.push(tokens(1));
  await early.return();
  await early.return();
  assert.equal(left, 1);
  assert.equal((await early.next()).done, true);
  const late = new EventStream(() => left++);
  late.push(finish);
  await late.return();
  assert.equal(left, 1);
});
