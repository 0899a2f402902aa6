// Finds a model folder's tokenizer files.

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createHuggingFace } from "./hugging-face.ts";
import { createTiktoken, parseRanks } from "./tiktoken.ts";
import { type Tokenizer, TokenizerFileError } from "./tokenizer.ts";

/**
 * tokenizer.json, or tiktoken.model with tokenizer_config.json.
 * @throws TokenizerFileError naming the file that is missing or wrong
 */
export function loadTokenizer(dir: string): Tokenizer {
  const config = readJson(dir, "tokenizer_config.json");
  const json = readJson(dir, "tokenizer.json");
  if (json !== undefined) return createHuggingFace(json, config ?? {});
  const ranks = join(dir, "tiktoken.model");
  if (!existsSync(ranks)) throw new TokenizerFileError(`${dir} has no tokenizer.json (nor a tiktoken.model)`);
  if (config === undefined) {
    throw new TokenizerFileError(
      `${dir} has a tiktoken.model but no tokenizer_config.json, which names the control tokens`,
    );
  }
  return createTiktoken(parseRanks(readFileSync(ranks, "utf8")), config);
}

/**
 * A JSON object from the folder, undefined when the file does not exist.
 * @throws TokenizerFileError when it is not a JSON object
 */
export function readJson(dir: string, name: string): Record<string, unknown> | undefined {
  const path = join(dir, name);
  if (!existsSync(path)) return undefined;
  let value: unknown;
  try {
    value = JSON.parse(readFileSync(path, "utf8"));
  } catch (error) {
    throw new TokenizerFileError(`${path} is not JSON: ${(error as Error).message}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TokenizerFileError(`${path} is not a JSON object`);
  }
  return value as Record<string, unknown>;
}
