import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { createSigner } from "../../../gpu-node/contract/signing.ts";
import { key } from "./harness.ts";

const script = fileURLToPath(new URL("./shutdown-child.ts", import.meta.url));
const children: ChildProcess[] = [];
after(() => {
  for (const child of children) if (child.exitCode === null) child.kill("SIGKILL");
});

/** A node in a process; `exit` resolves with its code, or the signal that ended it. */
async function start(drainMs: number) {
  const child = spawn(process.execPath, [script, String(drainMs)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  children.push(child);
  const exit = once(child, "exit").then(([code, signal]) => code ?? signal);
  const [line] = await once(child.stdout, "data");
  return { child, url: String(line).trim(), exit };
}

/** A streamed request whose first event has arrived; `rest` is everything up to the end. */
async function stream(url: string): Promise<{ status: number; rest: Promise<string> }> {
  const target = "/v1/chat/completions";
  const body = JSON.stringify({ model: "nano", messages: [{ role: "user", content: "hi" }], stream: true });
  const signer = await createSigner(key);
  const signed = await signer.sign({ method: "POST", target, account: "acc", body });
  const headers = { "content-type": "application/json", ...signed };
  const response = await fetch(url + target, { method: "POST", body, headers });
  return { status: response.status, rest: response.text().catch(String) };
}

test("SIGTERM: running answers are finished, new ones refused, the process ends with 0", async () => {
  const { child, url, exit } = await start(600_000);
  const running = await stream(url);
  child.kill("SIGTERM");
  while ((await fetch(`${url}/readyz`)).status === 200);
  const refused = await stream(url);
  assert.equal(refused.status, 503);
  assert.match(await refused.rest, /"code":"draining"/);
  child.kill("SIGUSR1");
  assert.match(await running.rest, /\[DONE\]/);
  assert.equal(await exit, 0);
});

test("what is not finished within the drain time ends with a retryable error", async () => {
  const { child, url, exit } = await start(50);
  const running = await stream(url);
  child.kill("SIGTERM");
  const text = await running.rest;
  assert.match(text, /"code":"draining"/);
  assert.doesNotMatch(text, /\[DONE\]/);
  assert.equal(await exit, 0);
});

test("a second signal ends the process at once", async () => {
  const { child, url, exit } = await start(600_000);
  const running = await stream(url);
  child.kill("SIGINT");
  while ((await fetch(`${url}/readyz`)).status === 200);
  child.kill("SIGINT");
  assert.equal(await exit, 1);
  await running.rest;
});

test("an engine that is down for good ends every stream with an error and the process with 1", async () => {
  const { child, url, exit } = await start(600_000);
  const running = await stream(url);
  child.kill("SIGUSR2");
  assert.match(await running.rest, /"code":"engine_failed"/);
  assert.equal(await exit, 1);
});
