// Reading a JSON body without trusting it: bytes are counted as they arrive, nesting is measured before JSON.parse.

import { ApiError } from "./errors.ts";
import { LIMITS } from "./limits.ts";
import { fieldPath } from "./schema.ts";

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;

/**
 * Reads a body, keeping at most `limit` bytes.
 * @param drain further bytes that are read and dropped before the refusal: a client that is still sending sees its
 *   connection cut rather than the answer
 * @throws ApiError body_too_large, with the rest of the body not read
 */
export async function readBody(
  request: Request,
  limit: number = LIMITS.bodyBytes,
  drain = 0,
): Promise<Uint8Array<ArrayBuffer>> {
  const tooLarge = () => new ApiError("body_too_large", `The body is larger than ${limit} bytes.`);
  const declared = Number(request.headers.get("content-length") ?? 0);
  if (declared > limit + drain) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let size = 0;
  if (request.body) {
    const reader = request.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.byteLength;
      if (size <= limit) {
        chunks.push(value);
      } else if (size > limit + drain) {
        reader.cancel().catch(() => {});
        throw tooLarge();
      }
    }
  }
  if (size > limit) throw tooLarge();
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.byteLength;
  }
  return bytes;
}

/**
 * Parses a body that must be a JSON object.
 * @throws ApiError invalid_json: empty, not UTF-8, not JSON, not an object, nested too deep, too many values; invalid_value:
 * a key `__proto__` at any depth
 */
export function parseJsonObject(bytes: Uint8Array): Record<string, unknown> {
  if (bytes.byteLength === 0) throw new ApiError("invalid_json", "The body is empty; send a JSON object.");
  measure(bytes);
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
  } catch {
    throw new ApiError("invalid_json", "The body is not valid UTF-8.");
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const at = /position (\d+)/.exec(String(error))?.[1];
    throw new ApiError("invalid_json", `The body is not valid JSON${at ? ` (at character ${at})` : ""}.`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new ApiError("invalid_json", "The body must be a JSON object.");
  }
  // Rare enough that only a body that spells it, or escapes characters as such a spelling would, is searched.
  const proto = /__proto__|\\u00[567]/i.test(text) ? protoPath(value) : undefined;
  if (proto) {
    const param = fieldPath(proto);
    throw new ApiError("invalid_value", `${param} is not allowed.`, { param });
  }
  return value as Record<string, unknown>;
}

/** Where a key stands that could become a prototype; it has no honest use. Depth is bounded by `measure`. */
function protoPath(value: object): PropertyKey[] | undefined {
  if (Object.hasOwn(value, "__proto__")) return ["__proto__"];
  for (const key of Array.isArray(value) ? value.keys() : Object.keys(value)) {
    const inner = (value as Record<PropertyKey, unknown>)[key];
    const found = typeof inner === "object" && inner !== null ? protoPath(inner) : undefined;
    if (found) return [key, ...found];
  }
  return undefined;
}

/** One pass over the bytes: depth of brackets and number of values, outside strings. */
function measure(bytes: Uint8Array): void {
  let depth = 0;
  let values = 0;
  let inString = false;
  for (let i = 0; i < bytes.length; i++) {
    const byte = bytes[i];
    if (inString) {
      if (byte === BACKSLASH) i++;
      else if (byte === QUOTE) inString = false;
    } else if (byte === QUOTE) {
      inString = true;
    } else if (byte === 0x5b || byte === 0x7b) {
      values++;
      if (++depth > LIMITS.jsonDepth) {
        throw new ApiError("invalid_json", `The body is nested deeper than ${LIMITS.jsonDepth} levels.`);
      }
    } else if (byte === 0x5d || byte === 0x7d) {
      depth--;
    } else if (byte === COMMA) {
      values++;
    }
  }
  if (values > LIMITS.jsonValues) {
    throw new ApiError("invalid_json", `The body holds more than ${LIMITS.jsonValues} values.`);
  }
}
