// GPU nodes and the edge on this machine, as child processes: what `npm start` runs and the end-to-end tests use.

import { mkdirSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Child, startChild } from "./child.ts";
import { apiKeyList, type Secrets } from "./secrets.ts";

export const ROOT = fileURLToPath(new URL("../..", import.meta.url));

export interface StackOptions {
  /** Model folder, checked. */
  model: string;
  /** Of the edge. */
  port: number;
  /** One node for each. */
  nodePorts: number[];
  secrets: Secrets;
  /** Files of this run: variables of the edge, wrangler's state and logs. */
  folder: string;
  /** More flags of `edgewise serve`. */
  serveFlags?: string[];
  /** A part got ready; `seconds` since the start. */
  onReady?: (part: string, url: string, seconds: number) => void;
  /** One line of a part's output. */
  onLine?: (part: string, line: string) => void;
}

export interface Stack {
  url: string;
  nodes: { id: string; url: string }[];
  modelName: string;
  /** Resolves when a part ends by itself. */
  failed: Promise<PartFailed>;
  /** Resolves when no process is left. */
  stop(): Promise<void>;
}

/** A part ended before it was asked to. */
export class PartFailed extends Error {
  constructor(part: string, how: string, lines: string[]) {
    super([`${part} ended (${how})`, ...lines.map((line) => `  ${line}`)].join("\n"));
  }
}

/** For the edge; a node may load a large model for as long as it lives. */
const EDGE_STARTUP_MS = 60_000;
const GRACE_MS = 5_000;
const POLL_MS = 50;
/** Lines kept of each part for the case that it fails. */
const KEPT_LINES = 12;

/** Nothing of `wrangler dev` may reach out: no telemetry, update check, `cf` data or prompt. */
const OFFLINE = {
  CI: "true",
  CLOUDFLARE_CF_FETCH_ENABLED: "false",
  DO_NOT_TRACK: "1",
  WRANGLER_SEND_METRICS: "false",
  WRANGLER_SEND_ERROR_REPORTS: "false",
  WRANGLER_HIDE_BANNER: "true",
  WRANGLER_NO_SKILLS_UPDATE_PROMPTS: "true",
};

/**
 * Starts everything and resolves when the edge reports ready.
 * @throws PartFailed when a part ends first, Error when `abort` fires; no process is left then
 */
export async function startStack(options: StackOptions, abort: AbortSignal): Promise<Stack> {
  const { model, port, nodePorts, secrets, onReady } = options;
  const modelName = basename(model).replace(/[^A-Za-z0-9._-]/g, "-");
  const url = `http://127.0.0.1:${port}`;
  const nodes = nodePorts.map((nodePort, i) => ({
    id: String.fromCharCode(97 + i),
    url: `http://127.0.0.1:${nodePort}`,
    port: nodePort,
  }));
  const parts = [
    ...nodes.map((node) => startNode(node.id, node.port, modelName, options)),
    startEdge(nodes, await apiKeyList(secrets), options),
  ];
  const failed = Promise.race(
    parts.map(async ({ child, lines }) => new PartFailed(child.name, await child.exited, lines)),
  );
  // Whatever ends this process, nothing it started stays behind.
  const kill = () => parts.forEach(({ child }) => void child.kill());
  process.once("exit", kill);
  const stop = async () => {
    await Promise.all(parts.map(({ child }) => child.stop(GRACE_MS)));
    process.off("exit", kill);
  };
  const began = Date.now();
  const seconds = () => (Date.now() - began) / 1000;

  const until = async (part: string, shown: string, probe: string, limitMs = Number.POSITIVE_INFINITY) => {
    while (!abort.aborted && !(await answers(probe))) {
      if (seconds() * 1000 > limitMs) throw new Error(`${part} was not ready after ${limitMs / 1000} s`);
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
    if (!abort.aborted) onReady?.(part, shown, seconds());
  };
  const ready = Promise.all([
    ...nodes.map((node) => until(`node ${node.id}`, node.url, `${node.url}/readyz`)),
    until("edge", url, `${url}/livez`, EDGE_STARTUP_MS),
  ]);
  try {
    const first = await Promise.race([ready, failed]);
    if (first instanceof PartFailed) throw first;
    abort.throwIfAborted();
    if (!(await answers(`${url}/readyz`))) throw new Error("the edge does not reach its nodes");
  } catch (error) {
    ready.catch(() => {});
    await stop();
    throw error;
  }
  return { url, nodes, modelName, failed, stop };
}

interface Part {
  child: Child;
  lines: string[];
}

function startNode(id: string, port: number, modelName: string, options: StackOptions): Part {
  const { model, secrets, serveFlags = [] } = options;
  const args = [join(ROOT, "gpu-node/cli.ts"), "serve", "--model", model, "--served-model-name", modelName];
  args.push(
    ...["--host", "127.0.0.1", "--port", String(port), "--backend", "cpu"],
    ...["--drain-seconds", "2", ...serveFlags],
  );
  return startPart(`node ${id}`, args, { EDGEWISE_NODE_KEY: secrets.nodeKey }, options);
}

function startEdge(nodes: { id: string; url: string }[], apiKeys: string, options: StackOptions): Part {
  const { port, secrets, folder } = options;
  mkdirSync(folder, { recursive: true });
  // Named by port, so that two runs from one folder do not rewrite each other.
  const variables = join(folder, `edge-${port}.env`);
  const lines = [
    `EDGEWISE_NODES='${JSON.stringify(nodes.map(({ id, url }) => ({ id, url })))}'`,
    `EDGEWISE_NODE_KEYS='${secrets.nodeKey}'`,
    `EDGEWISE_API_KEYS='${apiKeys}'`,
    `EDGEWISE_KEY_PEPPER='${secrets.pepper}'`,
  ];
  writeFileSync(variables, `${lines.join("\n")}\n`, { mode: 0o600 });
  const args = [join(ROOT, "node_modules/wrangler/bin/wrangler.js"), "dev", "--local"];
  args.push(
    "--config",
    join(ROOT, "wrangler.toml"),
    "--env-file",
    variables,
    "--persist-to",
    join(folder, `state-${port}`),
  );
  args.push("--ip", "127.0.0.1", "--port", String(port), "--inspector-port", "0");
  args.push("--show-interactive-dev-session=false");
  return startPart("edge", args, { ...OFFLINE, WRANGLER_LOG_PATH: join(folder, "logs") }, options);
}

/** Runs a script with the Node.js that runs us. */
function startPart(name: string, args: string[], env: Record<string, string>, options: StackOptions): Part {
  const lines: string[] = [];
  const child = startChild({
    name,
    command: process.execPath,
    args: ["--disable-warning=ExperimentalWarning", ...args],
    cwd: ROOT,
    env: { ...process.env, ...env },
    onLine(line) {
      if (line.trim() === "") return;
      lines.push(line);
      if (lines.length > KEPT_LINES) lines.shift();
      options.onLine?.(name, line);
    },
  });
  return { child, lines };
}

async function answers(url: string): Promise<boolean> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(2_000) });
    await response.body?.cancel();
    return response.ok;
  } catch {
    return false;
  }
}
