// The whole path as child processes: `wrangler dev`, nodes on the CPU backend, a real model.

import { existsSync, mkdtempSync, rmSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createSigner, parseNodeKey } from "../../gpu-node/contract/signing.ts";
import { generateSecrets, type Secrets } from "../../gpu-node/local/secrets.ts";
import { ROOT, startStack } from "../../gpu-node/local/stack.ts";
import { addonPath } from "../../gpu-node/native/load.ts";

export const BUNDLED = join(ROOT, "gpu-node/models/nano");

/** The bundled model, or the folder that EDGEWISE_TEST_MODEL names. */
export const MODEL = process.env.EDGEWISE_TEST_MODEL ?? BUNDLED;

/** Why these tests cannot run here; false when they can. A missing addon is a failure, not a reason. */
export const SKIP: string | false = existsSync(join(MODEL, "model.safetensors"))
  ? false
  : `no weights in ${MODEL}`;

export interface Path {
  /** Of the edge. */
  url: string;
  nodes: { id: string; url: string }[];
  model: string;
  secrets: Secrets;
  /** Under `/client/v4`, up to `/ai`. */
  native: string;
  close(): Promise<void>;
}

/** Starts the path on free ports with keys of its own. */
export async function openPath(nodeCount: number): Promise<Path> {
  if (addonPath() === undefined) throw new Error("the native addon is not built: npm run build");
  const secrets = await generateSecrets();
  const folder = mkdtempSync(join(tmpdir(), "edgewise-e2e-"));
  const [port, ...nodePorts] = await freePorts(1 + nodeCount);
  const stack = await startStack(
    { model: MODEL, port, nodePorts, secrets, folder, serveFlags: ["--kv-gib", "0.25"] },
    new AbortController().signal,
  );
  return {
    url: stack.url,
    nodes: stack.nodes,
    model: stack.modelName,
    secrets,
    native: `${stack.url}/client/v4/accounts/${secrets.account}/ai`,
    async close() {
      await stack.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** A POST to the edge with the local key. */
export function post(path: Path, url: string, body: string, signal?: AbortSignal): Promise<Response> {
  const headers = { authorization: `Bearer ${path.secrets.apiKey}`, "content-type": "application/json" };
  return fetch(url, { method: "POST", headers, body, signal });
}

/** A POST to a node, signed as the edge signs. */
export async function postToNode(path: Path, target: string, body: string): Promise<Response> {
  const signer = await createSigner(parseNodeKey(path.secrets.nodeKey)!);
  const headers = await signer.sign({ method: "POST", target, account: path.secrets.account, body });
  return fetch(path.nodes[0].url + target, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body,
  });
}

/** Gauges and counters without labels of a node's /metrics, by name without its prefix. */
export async function metrics(nodeUrl: string): Promise<Record<string, number>> {
  const text = await (await fetch(`${nodeUrl}/metrics`)).text();
  const found: Record<string, number> = {};
  for (const [, name, value] of text.matchAll(/^edgewise_(\w+) (\S+)$/gm)) found[name] = Number(value);
  return found;
}

const IDLE_MS = 90_000;

/** Waits until a node has nothing running or waiting and gives its metrics; the last ones when that never happens. */
export async function whenIdle(nodeUrl: string): Promise<Record<string, number>> {
  for (const end = Date.now() + IDLE_MS; ; ) {
    const now = await metrics(nodeUrl);
    const idle = now.requests_running === 0 && now.requests_waiting === 0 && now.pages_owned === 0;
    if (idle || Date.now() > end) return now;
    await sleep(50);
  }
}

export function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Ports that were free a moment ago, all different. */
export async function freePorts(count: number): Promise<number[]> {
  const servers = Array.from({ length: count }, () => createServer());
  const ports: number[] = [];
  for (const server of servers) {
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    ports.push((server.address() as AddressInfo).port);
  }
  for (const server of servers) await new Promise((resolve) => server.close(resolve));
  return ports;
}
