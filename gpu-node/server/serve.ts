// `edgewise serve`: one model folder as a node.

import { existsSync, statSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { loadOptions, type ServeOptions, serveOptions } from "../config.ts";
import {
  createVerifier,
  formatNodeKey,
  generateNodeKey,
  type NodeKey,
  parseNodeKey,
} from "../contract/signing.ts";
import { type EngineClient, startEngine } from "../engine/client.ts";
import { type FaultSpec, parseFault } from "../engine/faults.ts";
import type { ModelRunnerOptions } from "../engine/open-runner.ts";
import { autoBackend } from "../native/auto-backend.ts";
import { loadAddon } from "../native/load.ts";
import { helpText, UsageError } from "../options.ts";
import { loadModelText, type ModelText } from "../text/model-text.ts";
import { Prompts } from "../text/prompts.ts";
import { TokenizerFileError } from "../text/tokenizer/tokenizer.ts";
import { progressBar } from "../weights/progress.ts";
import { createApp } from "./app.ts";
import { Generations } from "./generation.ts";
import { listen } from "./listen.ts";
import { createMetrics } from "./metrics.ts";
import { untilShutdown } from "./shutdown.ts";

/** @returns the exit code, when the node has ended */
export async function main(argv: string[]): Promise<number> {
  if (argv.includes("--help")) {
    console.log(`edgewise serve --model DIR [flags]\n\n${helpText(serveOptions)}`);
    console.log("\nEvery flag is also a key of edgewise.toml (--config FILE, else the one in this folder).");
    return 0;
  }
  const options = loadOptions(serveOptions, argv);
  const dir = modelFolder(options.model);
  const { key, generated } = nodeKey(options.node_key ?? process.env.EDGEWISE_NODE_KEY);
  const text = readText(dir);
  const log = (message: string) => console.error(`edgewise: ${message}`);

  const engine = startEngine({ ...engineOptions(dir, options), log });
  const generations = new Generations(engine);
  const prompts = new Prompts(text, dir);
  const names = options.served_model_name?.split(",").map((name) => name.trim()) ?? [];
  if (names.includes("")) throw new UsageError("--served-model-name holds an empty name");
  const app = createApp({
    engine,
    generations,
    text,
    prompts,
    modelNames: names.length > 0 ? names : [basename(dir)],
    verifier: await createVerifier([key]),
    policy: options.control_tokens,
    metrics: createMetrics(() => engine.status()),
    stallMs: options.stall_seconds * 1000,
    heartbeatMs: options.heartbeat_seconds * 1000,
    clock: Date.now,
    log: (message, error) =>
      log(`${message}: ${error instanceof Error ? (error.stack ?? error.message) : error}`),
  });
  let listener: Awaited<ReturnType<typeof listen>>;
  try {
    listener = await listen((request) => app.fetch(request), {
      host: options.host,
      port: options.port,
      maxConnections: options.max_connections,
    });
  } catch (error) {
    await engine.close();
    throw error;
  }
  log(`listening on ${listener.url}, loading ${dir}`);
  if (generated) log(`node key ${formatNodeKey(key)}`);
  announce(engine, log);
  return untilShutdown({
    engine,
    generations,
    prompts,
    listener,
    drainMs: options.drain_seconds * 1000,
    stallMs: options.stall_seconds * 1000,
    log,
  });
}

/** One line when the model is loaded. A failure is reported by the engine itself and ends the process. */
function announce(engine: EngineClient, log: (message: string) => void): void {
  const began = Date.now();
  const draw = progressBar(process.stderr, "loading");
  const timer = setInterval(() => draw(engine.status().progress), 100);
  engine
    .ready()
    .then(
      () => {
        draw(1);
        const seconds = ((Date.now() - began) / 1000).toFixed(1);
        log(`ready after ${seconds} s, context ${engine.maxModelLen} tokens`);
      },
      () => {},
    )
    .finally(() => clearInterval(timer));
}

function modelFolder(model: string | undefined): string {
  if (model === undefined) throw new UsageError("--model DIR is missing");
  const dir = resolve(model);
  if (!existsSync(dir)) throw new UsageError(`${dir} does not exist`);
  if (!statSync(dir).isDirectory()) throw new UsageError(`${dir} is not a folder`);
  if (!existsSync(join(dir, "config.json")))
    throw new UsageError(`${dir} is not a model folder: it has no config.json`);
  return dir;
}

function nodeKey(given: string | undefined): { key: NodeKey; generated: boolean } {
  if (given === undefined) return { key: generateNodeKey("node"), generated: true };
  const key = parseNodeKey(given);
  if (key === undefined) {
    throw new UsageError("--node-key must be ID:SECRET with a secret of at least 32 printable characters");
  }
  return { key, generated: false };
}

function readText(dir: string): ModelText {
  try {
    return loadModelText(dir);
  } catch (error) {
    if (error instanceof TokenizerFileError) throw new UsageError(error.message);
    throw error;
  }
}

function engineOptions(dir: string, options: ServeOptions) {
  const runner: ModelRunnerOptions = {
    kind: "model",
    dir,
    backend: options.backend === "auto" ? chooseBackend() : options.backend,
    threads: options.threads,
    activations: options.activations,
    kvFormat: options.kv,
    deterministic: options.deterministic,
    slots: options.max_running,
    maxLen: options.max_model_len,
    maxTokens: options.max_step_tokens,
    kvBytes: Math.floor(options.kv_gib * 2 ** 30),
    integrity: options.integrity,
  };
  const scheduler = {
    maxWaiting: options.max_waiting,
    prefixCache: options.prefix_cache,
    incidentFile: resolve(options.integrity_file),
    incidentsPerMinute: options.integrity_incidents,
    selfTestMs: options.integrity_test_seconds * 1000,
    fault: options.fault === undefined ? undefined : faultOf(options.fault, options.integrity),
  };
  return { runner, scheduler };
}

function faultOf(text: string, integrity: string): FaultSpec {
  if (integrity === "off") throw new UsageError("--fault needs --integrity tags: nothing would notice it");
  try {
    return parseFault(text, process.env);
  } catch (error) {
    throw new UsageError(`--fault: ${(error as Error).message}`);
  }
}

function chooseBackend(): "cuda" | "cpu" {
  try {
    return autoBackend(loadAddon().backends());
  } catch (error) {
    throw new UsageError((error as Error).message);
  }
}
