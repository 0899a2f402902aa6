// A real node as `edgewise serve` runs it, asked over HTTP with signed requests.

import type OpenAI from "openai";
import { createSigner, formatNodeKey, generateNodeKey } from "../../../gpu-node/contract/signing.ts";
import { startChild } from "../../../gpu-node/local/child.ts";
import { ROOT } from "../../../gpu-node/local/stack.ts";

export interface RunningNode {
  /** One chat completion of the served model. @throws Error with the body of an answer that is none */
  chat(request: Omit<OpenAI.ChatCompletionCreateParamsNonStreaming, "model">): Promise<OpenAI.ChatCompletion>;
  stop(): Promise<void>;
}

const MODEL_NAME = "m";
const CHAT = "/v1/chat/completions";
const GRACE_MS = 5_000;
const KEPT_LINES = 20;

/** Serves a model folder on a free port; resolves when it is loaded. */
export async function startNode(dir: string, flags: string[]): Promise<RunningNode> {
  const key = generateNodeKey("test");
  const lines: string[] = [];
  let heard = () => {};
  const child = startChild({
    name: "node",
    command: process.execPath,
    args: [
      ...["--disable-warning=ExperimentalWarning", "gpu-node/cli.ts", "serve", "--model", dir, "--port", "0"],
      ...["--served-model-name", MODEL_NAME, "--drain-seconds", "0", ...flags],
    ],
    cwd: ROOT,
    env: { ...process.env, EDGEWISE_NODE_KEY: formatNodeKey(key) },
    onLine(line) {
      lines.push(line);
      if (lines.length > KEPT_LINES) lines.shift();
      heard();
    },
  });
  process.once("exit", child.kill);
  /** The first group of a line that the node prints. */
  const says = async (pattern: RegExp): Promise<string> => {
    for (;;) {
      const match = lines.map((line) => pattern.exec(line)).find((found) => found !== null);
      if (match) return match[1];
      const line = new Promise<void>((resolve) => {
        heard = resolve;
      });
      if (await Promise.race([child.exited, line])) throw new Error(`the node ended:\n${lines.join("\n")}`);
    }
  };
  const url = await says(/listening on (http\S+),/);
  await says(/(ready) after/);
  const signer = await createSigner(key);
  return {
    async chat(request) {
      const body = JSON.stringify({ model: MODEL_NAME, ...request });
      const signed = await signer.sign({ method: "POST", target: CHAT, account: "test", body });
      const headers = { ...signed, "content-type": "application/json" };
      const response = await fetch(url + CHAT, { method: "POST", headers, body });
      if (!response.ok) throw new Error(await response.text());
      return (await response.json()) as OpenAI.ChatCompletion;
    },
    async stop() {
      await child.stop(GRACE_MS);
      process.off("exit", child.kill);
    },
  };
}
