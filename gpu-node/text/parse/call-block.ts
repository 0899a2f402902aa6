// The two forms in which a whole tool call lies between <tool_call> and </tool_call>.
//
//     Qwen, Hermes    {"name": "get_weather", "arguments": {"city": "Oslo"}}
//     GLM             get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value>   (line breaks between are allowed)

import type { Tool } from "../../contract/tools.ts";

export interface ParsedCall {
  name: string;
  /** JSON text of an object. */
  arguments: string;
}

/** Undefined when the block is in neither form. `tools` tell which of GLM's raw values are strings. */
export function parseCallBlock(block: string, tools: Tool[]): ParsedCall | undefined {
  const text = block.trim();
  return text.startsWith("{") ? parseJsonCall(text) : parseKeyedCall(text, tools);
}

function parseJsonCall(text: string): ParsedCall | undefined {
  let call: { name?: unknown; arguments?: unknown; parameters?: unknown };
  try {
    call = JSON.parse(text);
  } catch {
    return undefined;
  }
  const given = call.arguments ?? call.parameters ?? {};
  if (typeof call.name !== "string" || call.name === "") return undefined;
  return { name: call.name, arguments: typeof given === "string" ? given : JSON.stringify(given) };
}

const PAIR = /<arg_key>(.*?)<\/arg_key>\s*<arg_value>(.*?)<\/arg_value>/gs;

function parseKeyedCall(text: string, tools: Tool[]): ParsedCall | undefined {
  const name = text.slice(0, text.includes("<arg_key>") ? text.indexOf("<arg_key>") : undefined).trim();
  if (!/^[A-Za-z0-9_.:/-]{1,256}$/.test(name)) return undefined;
  const parameters = tools.find((tool) => tool.function.name === name)?.function.parameters;
  const entries: [string, unknown][] = [];
  for (const [, key, raw] of text.matchAll(PAIR)) {
    entries.push([key.trim(), isString(parameters, key.trim()) ? raw : jsonOrText(raw)]);
  }
  return { name, arguments: JSON.stringify(Object.fromEntries(entries)) };
}

/** The schema says that the value is a string, so `123` stays text and white space is kept. */
function isString(parameters: Record<string, unknown> | undefined, key: string): boolean {
  const properties = parameters?.properties;
  if (typeof properties !== "object" || properties === null || !Object.hasOwn(properties, key)) return false;
  const schema = (properties as Record<string, unknown>)[key];
  return typeof schema === "object" && schema !== null && (schema as { type?: unknown }).type === "string";
}

function jsonOrText(raw: string): unknown {
  try {
    return JSON.parse(raw);
  } catch {
    return raw;
  }
}
