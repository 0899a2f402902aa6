// The built Worker under workerd, in process, and fake nodes for it to reach.

import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import { build } from "esbuild";
import { Miniflare } from "miniflare";
import {
  type ApiKeyRecord,
  digestSecret,
  formatApiKey,
  generateApiKey,
} from "../../gpu-node/contract/api-key.ts";
import {
  bodyMatches,
  createVerifier,
  formatNodeKey,
  generateNodeKey,
  type NodeKey,
} from "../../gpu-node/contract/signing.ts";

export interface Seen {
  method: string;
  path: string;
  headers: IncomingMessage["headers"];
  body: string;
  account: string;
  /** Milliseconds from arrival until the edge closed before the answer was complete. */
  leftAfter: Promise<number>;
}

/** What a fake node does with an inference request. */
export type Behaviour = (response: ServerResponse, seen: Seen) => void | Promise<void>;

export interface FakeNode {
  id: string;
  url: string;
  /** Inference requests in order of arrival. */
  seen: Seen[];
  /** Replaced by tests. */
  behaviour: Behaviour;
  /** Requests refused because their signature did not verify. */
  refused: number;
  ready: boolean;
  /** Milliseconds that its list of models takes. */
  modelsMs: number;
  close(): Promise<void>;
}

export const nodeKey: NodeKey = generateNodeKey("test-edge");
export const PEPPER = "pepper".repeat(8);

export async function fakeNode(id: string, models = ["nano"], key = nodeKey): Promise<FakeNode> {
  const verifier = await createVerifier([key]);
  const node: Omit<FakeNode, "close" | "url"> = {
    id,
    seen: [],
    behaviour: streamOrJson,
    refused: 0,
    ready: true,
    modelsMs: 0,
  };

  const server = createServer(async (request, response) => {
    const path = request.url ?? "";
    if (path === "/readyz") return void response.writeHead(node.ready ? 200 : 503).end();
    const verdict = await verifier.check(request.method ?? "", path, (name) =>
      String(request.headers[name] ?? ""),
    );
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = Buffer.concat(chunks).toString();
    if (!verdict.ok || !(await bodyMatches(verdict.bodySha256, body))) {
      node.refused++;
      return void json(response, 401, { error: { message: "unsigned", code: "invalid_signature" } });
    }
    if (path === "/v1/models") {
      await sleep(node.modelsMs);
      const data = models.map((model) => ({
        id: model,
        object: "model",
        created: 1,
        owned_by: "t",
        max_model_len: 4096,
      }));
      return void json(response, 200, { object: "list", data });
    }
    const arrived = Date.now();
    const seen: Seen = {
      method: request.method ?? "",
      path,
      headers: request.headers,
      body,
      account: verdict.account,
      leftAfter: new Promise((resolve) => {
        response.once("close", () => {
          if (!response.writableFinished) resolve(Date.now() - arrived);
        });
      }),
    };
    node.seen.push(seen);
    await node.behaviour(response, seen);
  });
  const port = await listen(server);
  return Object.assign(node, {
    url: `http://127.0.0.1:${port}`,
    close: () => closeServer(server),
  });
}

export interface TestKey {
  token: string;
  record: ApiKeyRecord;
}

export async function apiKey(
  id: string,
  account: string,
  rest: Partial<ApiKeyRecord> = {},
): Promise<TestKey> {
  const key = generateApiKey(id);
  const digest = await digestSecret(PEPPER, key.secret);
  return { token: formatApiKey(key), record: { id, account, digest, ...rest } };
}

export interface EdgeOptions {
  nodes: { id: string; url: string; models?: string[]; weight?: number }[];
  keys: TestKey[];
  nodeKeys?: NodeKey[];
}

export interface Edge {
  url: string;
  close(): Promise<void>;
}

let bundle: Promise<string> | undefined;

/** The Worker as wrangler bundles it: esbuild, one ES module. */
export function builtWorker(): Promise<string> {
  bundle ??= build({
    entryPoints: [new URL("../../worker/index.ts", import.meta.url).pathname],
    bundle: true,
    format: "esm",
    target: "es2024",
    conditions: ["workerd", "worker", "browser"],
    write: false,
  }).then((result) => result.outputFiles[0].text);
  return bundle;
}

export async function startEdge({ nodes, keys, nodeKeys = [nodeKey] }: EdgeOptions): Promise<Edge> {
  const miniflare = new Miniflare({
    modules: true,
    script: await builtWorker(),
    compatibilityDate: "2026-07-30",
    compatibilityFlags: ["enable_request_signal"],
    cf: false,
    bindings: {
      EDGEWISE_NODES: JSON.stringify(
        nodes.map(({ id, url, models, weight }) => ({ id, url, models, weight })),
      ),
      EDGEWISE_NODE_KEYS: nodeKeys.map(formatNodeKey).join(","),
      EDGEWISE_API_KEYS: JSON.stringify(keys.map((key) => key.record)),
      EDGEWISE_KEY_PEPPER: PEPPER,
    },
  });
  const url = (await miniflare.ready).origin;
  return { url, close: () => miniflare.dispose() };
}

export function json(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
) {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}

export function chatChunk(delta: object, finish: string | null = null, rest: object = {}): string {
  const choices = [{ index: 0, delta, finish_reason: finish }];
  const chunk = {
    id: "chatcmpl-1",
    object: "chat.completion.chunk",
    created: 1,
    model: "nano",
    choices,
    ...rest,
  };
  return `data: ${JSON.stringify(chunk)}\n\n`;
}

/** A complete short stream. */
export const SHORT_STREAM = [
  chatChunk({ role: "assistant", content: "" }),
  chatChunk({ content: "Hel" }),
  chatChunk({ content: "lo 🌍" }),
  chatChunk({}, "stop"),
  `data: ${JSON.stringify({ id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: "nano", choices: [], usage: { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 } })}\n\n`,
  "data: [DONE]\n\n",
];

export const COMPLETION = {
  id: "chatcmpl-1",
  object: "chat.completion",
  created: 1,
  model: "nano",
  choices: [
    { index: 0, message: { role: "assistant", content: "Hello", refusal: null }, finish_reason: "stop" },
  ],
  usage: { prompt_tokens: 3, completion_tokens: 1, total_tokens: 4 },
};

export function startStream(response: ServerResponse): void {
  response.writeHead(200, { "content-type": "text/event-stream" });
}

/** The default: answers as asked. */
export const streamOrJson: Behaviour = (response, { body, path }) => {
  if (JSON.parse(body).stream) {
    startStream(response);
    for (const event of SHORT_STREAM) response.write(event);
    response.end();
  } else if (path === "/v1/completions") {
    json(response, 200, { ...COMPLETION, object: "text_completion", choices: [{ index: 0, text: "Hello" }] });
  } else {
    json(response, 200, COMPLETION);
  }
};

/** A port that nothing listens on. */
export async function closedPort(): Promise<number> {
  const server = createServer();
  const port = await listen(server);
  await closeServer(server);
  return port;
}

/** Sends up to `size` bytes of `x`, but no more once the answer is there. */
export function pour(
  url: string,
  headers: Record<string, string>,
  size: number,
): Promise<{ status: number; text: string; sent: number }> {
  return new Promise((resolve, reject) => {
    const piece = Buffer.alloc(1 << 16, "x");
    let sent = 0;
    let answered = false;
    const request = httpRequest(url, { method: "POST", headers }, (response) => {
      answered = true;
      let text = "";
      response.on("data", (chunk) => {
        text += chunk;
      });
      response.on("end", () => {
        request.destroy();
        resolve({ status: response.statusCode ?? 0, text, sent });
      });
    });
    request.on("error", (error) => {
      if (!answered) reject(error);
    });
    const pump = () => {
      while (!answered && sent < size) {
        const next = piece.subarray(0, size - sent);
        sent += next.length;
        if (!request.write(next)) return void request.once("drain", pump);
      }
      if (!answered) request.end();
    };
    pump();
  });
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

function listen(server: Server): Promise<number> {
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve((server.address() as AddressInfo).port));
  });
}

function closeServer(server: Server): Promise<void> {
  server.closeAllConnections();
  return new Promise((resolve) => server.close(() => resolve()));
}
