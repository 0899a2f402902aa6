// A node over a fake engine, its signed client, and the bundled model's text side.

import { fileURLToPath } from "node:url";
import {
  createSigner,
  createVerifier,
  type NodeKey,
  type Signer,
} from "../../../gpu-node/contract/signing.ts";
import { createApp } from "../../../gpu-node/server/app.ts";
import { Generations } from "../../../gpu-node/server/generation.ts";
import { createMetrics } from "../../../gpu-node/server/metrics.ts";
import type { GpuNode } from "../../../gpu-node/server/node.ts";
import { loadModelText } from "../../../gpu-node/text/model-text.ts";
import { Prompts } from "../../../gpu-node/text/prompts.ts";
import { FakeEngine, type Script } from "./fake-engine.ts";

export const NANO = fileURLToPath(new URL("../../../gpu-node/models/nano", import.meta.url));
export const text = loadModelText(NANO);
export const key: NodeKey = { id: "test", secret: "0123456789abcdef0123456789abcdef" };

export const END = text.tokenizer.control.byContent.get("<|im_end|>")!.id;
export const ids = (value: string) => text.tokenizer.encodeText(value);
/** A marker's id. */
export const mark = (content: string) => text.tokenizer.control.byContent.get(content)!.id;

/** One group per token, ended by the model's end token. */
export const says = (value: string): Script => ({ groups: [...ids(value).map((id) => [id]), [END]] });

export interface Harness {
  engine: FakeEngine;
  node: GpuNode;
  app: ReturnType<typeof createApp>;
  signer: Signer;
  logged: string[];
  /** A signed POST. */
  post(path: string, body: unknown, init?: RequestInit): Promise<Response>;
}

export async function harness(
  script: ((prompt: string, index: number) => Script) | Script,
  options: Partial<GpuNode> & { maxModelLen?: number } = {},
): Promise<Harness> {
  const decode = (prompt: Int32Array) =>
    Buffer.concat(Array.from(prompt, (id) => text.tokenizer.bytes.of(id))).toString();
  const engine = new FakeEngine(
    (request, index) => (typeof script === "function" ? script(decode(request.prompt), index) : script),
    { maxModelLen: options.maxModelLen },
  );
  const logged: string[] = [];
  const node: GpuNode = {
    engine,
    generations: new Generations(engine),
    text,
    prompts: new Prompts(text, NANO),
    modelNames: ["nano"],
    verifier: await createVerifier([key]),
    policy: "refuse",
    metrics: createMetrics(() => engine.status()),
    stallMs: 1000,
    heartbeatMs: 1000,
    clock: Date.now,
    log: (message) => logged.push(message),
    ...options,
  };
  const app = createApp(node);
  const signer = await createSigner(key);
  return {
    engine,
    node,
    app,
    signer,
    logged,
    async post(path, body, init = {}) {
      const raw = typeof body === "string" ? body : JSON.stringify(body);
      const headers = {
        "content-type": "application/json",
        ...(await signer.sign({ method: "POST", target: path, account: "acc", body: raw })),
        ...(init.headers as Record<string, string>),
      };
      return app.request(path, { method: "POST", body: raw, ...init, headers });
    },
  };
}

/** `data:` payloads of a stream; the last is "[DONE]" when it ended well. */
export async function events(response: Response): Promise<(Record<string, unknown> | string)[]> {
  const blocks = (await response.text()).split("\n\n").filter((block) => block.startsWith("data: "));
  return blocks.map((block) => (block === "data: [DONE]" ? "[DONE]" : JSON.parse(block.slice(6))));
}
