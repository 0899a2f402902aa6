// Keys of a local deployment, made once and kept in .edgewise/, so that a key pasted yesterday still works.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { digestSecret, formatApiKey, generateApiKey, parseApiKey } from "../contract/api-key.ts";
import { formatNodeKey, generateNodeKey, parseNodeKey, sha256Hex } from "../contract/signing.ts";

const secrets = z.object({
  /** 32 hex digits, as Cloudflare's account ids. */
  account: z.string().regex(/^[0-9a-f]{32}$/),
  apiKey: z.string().refine((text) => parseApiKey(text) !== undefined),
  pepper: z.string().min(32),
  nodeKey: z.string().refine((text) => parseNodeKey(text) !== undefined),
});

export type Secrets = z.output<typeof secrets>;

export async function generateSecrets(): Promise<Secrets> {
  const random = () => generateApiKey("local").secret;
  return {
    account: (await sha256Hex(random())).slice(0, 32),
    apiKey: formatApiKey(generateApiKey("local")),
    pepper: random(),
    nodeKey: formatNodeKey(generateNodeKey("local")),
  };
}

/** Reads `<folder>/local.json`; makes a new one when it is missing or unreadable. Only the owner may read it. */
export async function keptSecrets(folder: string): Promise<Secrets> {
  const path = join(folder, "local.json");
  try {
    return secrets.parse(JSON.parse(readFileSync(path, "utf8")));
  } catch {
    const made = await generateSecrets();
    mkdirSync(folder, { recursive: true });
    writeFileSync(path, `${JSON.stringify(made, null, 2)}\n`, { mode: 0o600 });
    return made;
  }
}

/** Value of EDGEWISE_API_KEYS: the one local key, as its digest. */
export async function apiKeyList({ apiKey, account, pepper }: Secrets): Promise<string> {
  const { id, secret } = parseApiKey(apiKey)!;
  return JSON.stringify([{ id, account, digest: await digestSecret(pepper, secret) }]);
}
