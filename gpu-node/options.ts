// Options of a verb: one table gives the flags, the keys of edgewise.toml, the checks and the help text.

export type OptionValue = string | number | boolean;

export interface OptionSpec {
  type: "string" | "integer" | "number" | "boolean";
  help: string;
  default?: OptionValue;
  choices?: readonly string[];
  min?: number;
  max?: number;
  /** Shown in help instead of the type, e.g. `DIR`. */
  value?: string;
}

/** Keys in snake_case as in TOML; the flag of `drain_seconds` is `--drain-seconds`. */
export type OptionTable = Record<string, OptionSpec>;

type ValueOf<S extends OptionSpec> = S["type"] extends "string"
  ? S extends { choices: readonly (infer C)[] }
    ? C
    : string
  : S["type"] extends "boolean"
    ? boolean
    : number;

/** Options with a default are always present. */
export type Options<T extends OptionTable> = {
  [K in keyof T]: T[K] extends { default: OptionValue } ? ValueOf<T[K]> : ValueOf<T[K]> | undefined;
};

/** A mistake of the person at the terminal: printed as one line, without a stack. */
export class UsageError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "UsageError";
  }
}

export const flagOf = (key: string) => `--${key.replaceAll("_", "-")}`;

/**
 * Reads `--flag value`, `--flag=value` and, for booleans, `--flag` and `--no-flag`.
 * @throws UsageError unknown flag (with a suggestion), missing or bad value
 */
export function parseFlags<T extends OptionTable>(table: T, argv: string[]): Partial<Options<T>> {
  const keys = new Map(Object.keys(table).map((key) => [flagOf(key), key]));
  const out: Record<string, OptionValue> = {};
  for (let i = 0; i < argv.length; i++) {
    const [flag, inline] = splitFlag(argv[i]);
    const negated = flag.startsWith("--no-") ? keys.get(`--${flag.slice(5)}`) : undefined;
    if (negated !== undefined && table[negated].type === "boolean") {
      if (inline !== undefined) throw new UsageError(`${flag} takes no value`);
      out[negated] = false;
      continue;
    }
    const key = keys.get(flag);
    if (key === undefined) {
      const what = argv[i].startsWith("-") ? "unknown flag" : "unexpected argument";
      throw new UsageError(`${what} ${flag}${suggest(flag, [...keys.keys()])}`);
    }
    const spec = table[key];
    if (spec.type === "boolean" && inline === undefined) {
      out[key] = true;
      continue;
    }
    // A value that begins with two dashes is written `--flag=--value`.
    if (inline === undefined && argv[i + 1]?.startsWith("--")) throw new UsageError(`${flag} needs a value`);
    const text = inline ?? argv[++i];
    if (text === undefined) throw new UsageError(`${flag} needs a value`);
    out[key] = fromText(spec, flag, text);
  }
  return out as Partial<Options<T>>;
}

/**
 * Checks the keys of a TOML table.
 * @throws UsageError unknown key (with a suggestion), wrong type
 */
export function parseTable<T extends OptionTable>(
  table: T,
  values: object,
  source: string,
): Partial<Options<T>> {
  const out: Record<string, OptionValue> = {};
  for (const [key, value] of Object.entries(values)) {
    if (!Object.hasOwn(table, key)) {
      throw new UsageError(`${source}: unknown key ${key}${suggest(key, Object.keys(table))}`);
    }
    out[key] = check(table[key], `${source}: ${key}`, value);
  }
  return out as Partial<Options<T>>;
}

export function defaultsOf<T extends OptionTable>(table: T): Partial<Options<T>> {
  const entries = Object.entries(table).filter(([, spec]) => spec.default !== undefined);
  return Object.fromEntries(entries.map(([key, spec]) => [key, spec.default])) as Partial<Options<T>>;
}

/** One line per option, aligned. */
export function helpText(table: OptionTable): string {
  const rows = Object.entries(table).map(([key, spec]) => {
    const value = spec.value ?? spec.choices?.join("|") ?? (spec.type === "boolean" ? "" : spec.type);
    const fallback = spec.default === undefined ? "" : ` (default ${spec.default})`;
    const off = spec.type === "boolean" && spec.default === true ? `, --no-${flagOf(key).slice(2)}` : "";
    return [`  ${flagOf(key)}${value ? ` ${value}` : ""}${off}`, `${spec.help}${fallback}`];
  });
  const width = Math.min(44, Math.max(...rows.map(([left]) => left.length)));
  return rows.map(([left, right]) => `${left.padEnd(width)}  ${right}`).join("\n");
}

/** `; did you mean X?` when one of the known words is close. */
export function suggest(word: string, known: string[]): string {
  let best = "";
  let least = Math.max(2, Math.ceil(word.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(word, candidate);
    if (distance < least) [best, least] = [candidate, distance];
  }
  return best === "" ? "" : `; did you mean ${best}?`;
}

function splitFlag(argument: string): [string, string | undefined] {
  const at = argument.indexOf("=");
  return at < 0 ? [argument, undefined] : [argument.slice(0, at), argument.slice(at + 1)];
}

function fromText(spec: OptionSpec, name: string, text: string): OptionValue {
  if (spec.type === "string") return check(spec, name, text);
  if (spec.type === "boolean")
    return check(spec, name, text === "true" ? true : text === "false" ? false : text);
  return check(spec, name, text.trim() === "" ? Number.NaN : Number(text));
}

function check(spec: OptionSpec, name: string, value: unknown): OptionValue {
  if (spec.type === "string") {
    if (typeof value !== "string") throw new UsageError(`${name} must be a string`);
    if (spec.choices && !spec.choices.includes(value)) {
      throw new UsageError(
        `${name} must be one of ${spec.choices.join(", ")}${suggest(value, [...spec.choices])}`,
      );
    }
    return value;
  }
  if (spec.type === "boolean") {
    if (typeof value !== "boolean") throw new UsageError(`${name} must be true or false`);
    return value;
  }
  if (typeof value !== "number" || !Number.isFinite(value)) throw new UsageError(`${name} must be a number`);
  if (spec.type === "integer" && !Number.isSafeInteger(value))
    throw new UsageError(`${name} must be an integer`);
  if (spec.min !== undefined && value < spec.min)
    throw new UsageError(`${name} must be at least ${spec.min}`);
  if (spec.max !== undefined && value > spec.max) throw new UsageError(`${name} must be at most ${spec.max}`);
  return value;
}

/** Levenshtein distance. */
function editDistance(a: string, b: string): number {
  let previous = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = a[i - 1] === b[j - 1] ? 0 : 1;
      row.push(Math.min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + change));
    }
    previous = row;
  }
  return previous[b.length];
}
