// Configuration of a node: edgewise.toml, every key of which is also a flag; flags win.

import { existsSync, readFileSync } from "node:fs";
import { parse, TomlError } from "smol-toml";
import { KV_FORMATS } from "./kv/format.ts";
import { INTEGRITY_MODES } from "./kv/tags.ts";
import { defaultsOf, type Options, type OptionTable, parseFlags, parseTable, UsageError } from "./options.ts";

export const serveOptions = {
  model: { type: "string", value: "DIR", help: "model folder (Hugging Face layout)" },
  served_model_name: {
    type: "string",
    help: "name in the API; several separated by commas (default: the folder's name)",
  },
  host: { type: "string", default: "127.0.0.1", help: "address to listen on" },
  port: { type: "integer", default: 8000, min: 0, max: 65535, help: "port; 0 takes a free one" },
  node_key: {
    type: "string",
    value: "ID:SECRET",
    help: "key that requests must be signed with, or env EDGEWISE_NODE_KEY (default: a new one, printed)",
  },
  control_tokens: {
    type: "string",
    choices: ["refuse", "text"],
    default: "refuse",
    help: "control tokens spelled in user text: refuse the request, or take them as plain text",
  },
  drain_seconds: {
    type: "number",
    default: 30,
    min: 0,
    max: 3600,
    help: "time for running requests after SIGTERM",
  },
  stall_seconds: {
    type: "number",
    default: 60,
    min: 1,
    max: 3600,
    help: "engine without a step for so long is stuck",
  },
  heartbeat_seconds: {
    type: "number",
    default: 15,
    min: 1,
    max: 600,
    help: "between comment lines on a quiet stream",
  },
  backend: {
    type: "string",
    choices: ["auto", "reference", "cpu", "cuda"],
    default: "auto",
    help: "what computes; auto: cuda where an H100 or H200 is, else cpu",
  },
  threads: { type: "integer", min: 1, max: 1024, help: "threads of the CPU backend (default: all cores)" },
  activations: { type: "string", choices: ["bf16", "f32"], default: "bf16", help: "type of activations" },
  kv: { type: "string", choices: KV_FORMATS, default: "bf16", help: "type of the KV cache" },
  kv_gib: { type: "number", default: 1, min: 0.001, max: 4096, help: "memory of the KV cache in GiB" },
  max_model_len: { type: "integer", min: 1, help: "longest sequence in tokens (default: the model's own)" },
  max_running: { type: "integer", default: 64, min: 1, max: 4096, help: "sequences in a batch" },
  max_waiting: {
    type: "integer",
    default: 1024,
    min: 0,
    max: 1e6,
    help: "sequences in the queue; more are refused",
  },
  max_step_tokens: { type: "integer", default: 512, min: 1, max: 1e6, help: "tokens computed in one step" },
  prefix_cache: {
    type: "boolean",
    default: true,
    help: "reuse the KV pages of equal beginnings within an account",
  },
  deterministic: {
    type: "boolean",
    default: false,
    help: "same bits for a request whatever else is in the batch (not with FP8 KV)",
  },
  integrity: {
    type: "string",
    choices: INTEGRITY_MODES,
    default: "off",
    help: "tags: every page of the KV cache is checked before it is read",
  },
  integrity_file: {
    type: "string",
    value: "FILE",
    default: "edgewise-incidents.jsonl",
    help: "where incidents of KV integrity are written",
  },
  integrity_incidents: {
    type: "integer",
    default: 3,
    min: 0,
    max: 1e6,
    help: "such incidents within a minute; one more turns readiness off",
  },
  integrity_test_seconds: {
    type: "number",
    default: 60,
    min: 0,
    max: 86400,
    help: "between self-tests of KV integrity; 0: none",
  },
  fault: {
    type: "string",
    value: "NAME:RATE",
    help: "for tests of the alarm: puts a fault into the KV cache's books; refused unless EDGEWISE_ALLOW_FAULTS=1",
  },
  max_connections: { type: "integer", default: 1024, min: 1, max: 65535, help: "open client connections" },
} as const satisfies OptionTable;

export type ServeOptions = Options<typeof serveOptions>;

const FILE = "edgewise.toml";

/**
 * Defaults, then the file (`--config FILE`, else ./edgewise.toml if it exists), then flags.
 * @throws UsageError unknown key or flag with a suggestion, bad value, unreadable file
 */
export function loadOptions<T extends OptionTable>(table: T, argv: string[]): Options<T> {
  const flags = parseFlags({ ...table, config: { type: "string", help: "" } } as const, argv);
  const { config, ...rest } = flags as typeof flags & { config?: string };
  const path = config ?? (existsSync(FILE) ? FILE : undefined);
  const file = path === undefined ? {} : parseTable(table, readToml(path), path);
  return { ...defaultsOf(table), ...file, ...rest } as Options<T>;
}

function readToml(path: string): object {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    throw new UsageError(`cannot read ${path}: ${(error as NodeJS.ErrnoException).code}`);
  }
  try {
    return parse(text);
  } catch (error) {
    if (!(error instanceof TomlError)) throw error;
    throw new UsageError(`${path}:${error.line}: ${error.message.split("\n")[0]}`);
  }
}
