// The edge's configuration: variables and secrets of the Worker, checked once.

import { z } from "zod";
import type { ApiKeyRecord } from "../gpu-node/contract/api-key.ts";
import { type NodeKey, parseNodeKey } from "../gpu-node/contract/signing.ts";
import { EDGE } from "./limits.ts";

/** Bindings of wrangler.toml; the secrets come from `wrangler secret put` or, locally, from `npm start`. */
export interface Env {
  /** JSON: `[{"id": "a", "url": "http://10.0.0.5:8000", "models"?: ["nano"], "weight"?: 1, "key"?: "edge-1"}]` */
  EDGEWISE_NODES?: string;
  /** `<id>:<secret>`, several separated by commas; a node without `key` is reached with the first. */
  EDGEWISE_NODE_KEYS?: string;
  /** JSON: `[{"id", "account", "digest", "status"?, "expires"?}]` */
  EDGEWISE_API_KEYS?: string;
  /** HMAC key of the digests. */
  EDGEWISE_KEY_PEPPER?: string;
}

export interface NodeConfig {
  id: string;
  /** Origin without a trailing slash. */
  url: string;
  /** Left out: the node is asked. */
  models?: string[];
  weight: number;
  key: NodeKey;
}

export interface Config {
  nodes: NodeConfig[];
  apiKeys: ApiKeyRecord[];
  pepper: string;
}

const name = z.string().regex(/^[A-Za-z0-9._-]{1,64}$/);

const nodeList = z
  .array(
    z.strictObject({
      id: name,
      url: z.url({ protocol: /^https?$/ }).transform((url) => url.replace(/\/+$/, "")),
      models: z.array(z.string().min(1)).optional(),
      weight: z.number().positive().max(1000).default(1),
      key: name.optional(),
    }),
  )
  .max(EDGE.nodes);

const keyList = z
  .array(
    z.strictObject({
      id: z.string().regex(/^[A-Za-z0-9]{4,32}$/),
      account: name,
      digest: z.string().regex(/^[0-9a-f]{64}$/),
      status: z.enum(["active", "revoked"]).optional(),
      expires: z.iso.datetime({ offset: true }).optional(),
    }),
  )
  .max(EDGE.apiKeys);

/**
 * Reads the bindings.
 * @throws Error naming the variable; secrets are never part of the message
 */
export function readConfig(env: Env): Config {
  const keys: NodeKey[] = [];
  for (const text of (env.EDGEWISE_NODE_KEYS ?? "").split(",")) {
    if (text.trim() === "") continue;
    const key = parseNodeKey(text.trim());
    if (!key)
      throw new Error("EDGEWISE_NODE_KEYS: each entry must be <id>:<secret of 32 or more characters>");
    keys.push(key);
  }
  const listed = readJson("EDGEWISE_NODES", env.EDGEWISE_NODES, nodeList);
  const nodes = listed.map((node) => {
    const key = node.key === undefined ? keys[0] : keys.find((candidate) => candidate.id === node.key);
    if (!key) throw new Error(`EDGEWISE_NODES: node ${node.id} has no key in EDGEWISE_NODE_KEYS`);
    return { ...node, key };
  });
  if (new Set(nodes.map((node) => node.id)).size !== nodes.length) {
    throw new Error("EDGEWISE_NODES: two nodes have the same id");
  }
  const apiKeys = readJson("EDGEWISE_API_KEYS", env.EDGEWISE_API_KEYS, keyList);
  const pepper = env.EDGEWISE_KEY_PEPPER ?? "";
  if (apiKeys.length > 0 && pepper.length < 32) {
    throw new Error("EDGEWISE_KEY_PEPPER: must have at least 32 characters");
  }
  return { nodes, apiKeys, pepper };
}

function readJson<T extends z.ZodType>(variable: string, text: string | undefined, schema: T): z.output<T> {
  let value: unknown;
  try {
    value = JSON.parse(text || "[]");
  } catch {
    throw new Error(`${variable}: not valid JSON`);
  }
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  throw new Error(`${variable}: ${issue.path.join(".") || "value"}: ${issue.message}`);
}
