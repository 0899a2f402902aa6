// `edgewise VERB ...`: finds the verb's module, which is loaded only then.

import { readFileSync } from "node:fs";
import { suggest, UsageError } from "./options.ts";

interface Verb {
  help: string;
  /** The module's `main` takes the arguments after the verb and returns the exit code. */
  load: () => Promise<{ main(argv: string[]): Promise<number> }>;
}

export const verbs: Record<string, Verb> = {
  start: { help: "nodes and edge on this machine", load: () => import("./local/start.ts") },
  test: { help: "run the tests that need no GPU", load: () => import("./local/test.ts") },
  serve: { help: "serve one model folder as a GPU node", load: () => import("./server/serve.ts") },
  bench: { help: "time a model on this machine", load: () => import("./bench/bench.ts") },
  plan: { help: "what a model takes, and tokens per GB of KV cache", load: () => import("./plan/plan.ts") },
  doctor: { help: "what this machine runs, and why not the rest", load: () => import("./native/doctor.ts") },
  incidents: { help: "list incidents of KV integrity", load: () => import("./kv/list-incidents.ts") },
  eval: { help: "compare a model's answers with golden ones", load: () => import("./eval/eval.ts") },
};

const help = () =>
  [
    "edgewise VERB [flags]; `edgewise VERB --help` lists the flags",
    "",
    ...Object.entries(verbs).map(([name, { help: text }]) => `  ${name.padEnd(10)} ${text}`),
    `  ${"version".padEnd(10)} print the version`,
  ].join("\n");

/** @returns the exit code */
export async function run(argv: string[]): Promise<number> {
  const [name = "help", ...rest] = argv;
  if (["help", "--help", "-h"].includes(name)) {
    console.log(help());
    return 0;
  }
  if (["version", "--version", "-v"].includes(name)) {
    const manifest = readFileSync(new URL("../package.json", import.meta.url), "utf8");
    console.log(JSON.parse(manifest).version);
    return 0;
  }
  try {
    if (!Object.hasOwn(verbs, name)) {
      throw new UsageError(
        `unknown verb ${name}${suggest(name, [...Object.keys(verbs), "version", "help"])}`,
      );
    }
    return await (await verbs[name].load()).main(rest);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    console.error(`edgewise: ${error.message}`);
    return 2;
  }
}

if (import.meta.main) process.exitCode = await run(process.argv.slice(2));
