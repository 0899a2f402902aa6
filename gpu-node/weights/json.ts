// JSON of untrusted files: JSON.parse keeps the last of two equal keys, which lets two readers of one file disagree.

/**
 * Parses JSON text and refuses repeated keys.
 * Throws SyntaxError for text that is not JSON, and for an object that names a key twice, stating the key.
 */
export function parseStrictJson(text: string): unknown {
  const value: unknown = JSON.parse(text);
  const repeated = findRepeatedKey(text);
  if (repeated !== null) throw new SyntaxError(`the key ${JSON.stringify(repeated)} appears twice`);
  return value;
}

/** True for a JSON object, not an array or null. */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** First key that an object of valid JSON text names twice, or null. */
function findRepeatedKey(text: string): string | null {
  const open: (Set<string> | null)[] = []; // one entry per open bracket: the keys of an object, null for an array
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === "{") open.push(new Set());
    else if (c === "[") open.push(null);
    else if (c === "}" || c === "]") open.pop();
    else if (c === '"') {
      const end = endOfString(text, i);
      const keys = open[open.length - 1];
      if (keys && isKey(text, end)) {
        const key = JSON.parse(text.slice(i, end)) as string;
        if (keys.has(key)) return key;
        keys.add(key);
      }
      i = end - 1;
    }
  }
  return null;
}

/** Index just behind the string literal that starts at `begin`. */
function endOfString(text: string, begin: number): number {
  let i = begin + 1;
  while (text[i] !== '"') i += text[i] === "\\" ? 2 : 1;
  return i + 1;
}

function isKey(text: string, end: number): boolean {
  let i = end;
  while (text[i] === " " || text[i] === "\n" || text[i] === "\r" || text[i] === "\t") i++;
  return text[i] === ":";
}
