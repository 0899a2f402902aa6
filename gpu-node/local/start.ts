// `edgewise start`, `npm start`: GPU nodes on the CPU backend and the edge under `wrangler dev`, until Ctrl-C.

import { join } from "node:path";
import { serveOptions } from "../config.ts";
import { addonPath } from "../native/load.ts";
import { defaultsOf, flagOf, helpText, type OptionTable, parseFlags, UsageError } from "../options.ts";
import { checkAddon, checkModel, checkPort } from "./checks.ts";
import { keptSecrets } from "./secrets.ts";
import { PartFailed, ROOT, type Stack, startStack } from "./stack.ts";
import { createStyle, type Style, welcomeText } from "./welcome.ts";

/** Options of `edgewise serve` that are handed on to every node. */
const { activations, kv, kv_gib, max_model_len, threads } = serveOptions;
const nodeOptions = { activations, kv, kv_gib, max_model_len, threads } satisfies OptionTable;

const startOptions = {
  model: { type: "string", value: "DIR", help: "model folder (default: the bundled nano)" },
  port: { type: "integer", default: 8787, min: 1, max: 65535, help: "port of the edge" },
  node_port: { type: "integer", default: 8000, min: 1, max: 65535, help: "port of the first node" },
  nodes: { type: "integer", default: 1, min: 1, max: 8, help: "number of nodes" },
  verbose: { type: "boolean", default: false, help: "show all output of nodes and edge from the beginning" },
  ...nodeOptions,
} as const satisfies OptionTable;

/** Our own readiness probes in wrangler's log. */
const PROBE = /GET \/(livez|readyz) /;
const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"] as const;

/** Exit codes: 0 after a signal, 1 when a part failed, 2 for a mistake that was found before anything ran. */
export async function main(argv: string[]): Promise<number> {
  if (argv.includes("--help")) {
    console.log(`edgewise start [flags]: nodes and edge on this machine\n\n${helpText(startOptions)}`);
    return 0;
  }
  const given = parseFlags(startOptions, argv);
  const options = { ...defaultsOf(startOptions), ...given };
  // Only what was given: a default would win over a node's edgewise.toml.
  const serveFlags = Object.entries(given)
    .filter(([key]) => Object.hasOwn(nodeOptions, key))
    .map(([key, value]) => `${flagOf(key)}=${value}`);
  const { port = 0, node_port = 0, nodes = 1, verbose } = options;
  const model = checkModel(options.model ?? join(ROOT, "gpu-node/models/nano"));
  checkAddon(addonPath());
  const nodePorts = Array.from({ length: nodes }, (_, i) => node_port + i);
  if (nodePorts.includes(port)) throw new UsageError(`port ${port} is both the edge's and a node's`);
  await checkPort(port, "--port");
  for (const nodePort of nodePorts) await checkPort(nodePort, "--node-port");

  const folder = join(ROOT, ".edgewise");
  const secrets = await keptSecrets(folder);
  const style = createStyle(process.stdout.isTTY && !process.env.NO_COLOR);
  const interrupt = interruption();
  let stack: Stack | undefined;
  let quiet = !verbose;
  try {
    stack = await startStack(
      {
        ...{ model, port, nodePorts, secrets, folder, serveFlags },
        onReady: (part, url, seconds) => console.log(readyLine(style, part, url, seconds)),
        onLine: (part, line) => {
          if (!quiet && !PROBE.test(line)) console.log(style.dim(`${part.padEnd(6)} │ `) + line);
        },
      },
      interrupt.signal,
    );
    const welcome = { url: `http://localhost:${port}`, apiKey: secrets.apiKey, account: secrets.account };
    console.log(welcomeText({ ...welcome, model: stack.modelName }, style));
    quiet = false;
    const failure = await Promise.race([stack.failed, interrupt.happened]);
    quiet = true;
    if (failure === undefined) return 0;
    throw failure;
  } catch (error) {
    if (interrupt.signal.aborted) return 0;
    const message = error instanceof PartFailed ? error.message : String(error);
    console.error(`${style.red("✗")} ${message}`);
    return 1;
  } finally {
    await stack?.stop();
  }
}

function readyLine(style: Style, part: string, url: string, seconds: number): string {
  return `${style.green("✓")} ${part.padEnd(7)} ${url}  ${style.dim(`${seconds.toFixed(1)} s`)}`;
}

interface Interruption {
  signal: AbortSignal;
  happened: Promise<undefined>;
}

/** Ctrl-C, a termination, a closed terminal, or the end of the npm that started us. The second one ends us at once. */
function interruption(): Interruption {
  const controller = new AbortController();
  const interrupt = () => {
    if (controller.signal.aborted) process.exit(1);
    controller.abort();
  };
  for (const signal of SIGNALS) process.on(signal, interrupt);
  if (process.env.npm_lifecycle_event !== undefined) {
    const parent = process.ppid;
    const watch = setInterval(() => {
      if (process.ppid === parent) return;
      clearInterval(watch);
      if (!controller.signal.aborted) controller.abort();
    }, 1_000);
    watch.unref();
  }
  return {
    signal: controller.signal,
    happened: new Promise((resolve) => {
      controller.signal.addEventListener("abort", () => resolve(undefined), { once: true });
    }),
  };
}
