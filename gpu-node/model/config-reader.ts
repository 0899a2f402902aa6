// Typed access to config.json, which is untrusted: every error names the file and the key.
import { CheckpointError } from "../weights/errors.ts";
import { isObject } from "../weights/json.ts";

export interface Range {
  min: number;
  max: number;
}

/** An object of config.json. A key that is null counts as absent. */
export class ConfigReader {
  readonly #values: Record<string, unknown>;
  readonly #file: string;
  readonly #path: string;

  constructor(values: Record<string, unknown>, file: string, path = "") {
    this.#values = values;
    this.#file = file;
    this.#path = path;
  }

  /** The error to throw for `key`. */
  error(key: string, what: string, code: "bad_config" | "unsupported" = "bad_config"): CheckpointError {
    return new CheckpointError(code, this.#file, `${this.#path}${key}: ${what}`);
  }

  get(key: string): unknown {
    return Object.hasOwn(this.#values, key) ? (this.#values[key] ?? undefined) : undefined;
  }

  has(key: string): boolean {
    return this.get(key) !== undefined;
  }

  /** A whole number; without `fallback` the key must be there. */
  integer(key: string, range: Range, fallback?: number): number {
    const value = this.number(key, range, fallback);
    if (!Number.isSafeInteger(value)) throw this.error(key, `must be a whole number, is ${value}`);
    return value;
  }

  number(key: string, { min, max }: Range, fallback?: number): number {
    const value = this.get(key) ?? fallback;
    if (value === undefined) throw this.error(key, "is missing");
    if (typeof value !== "number" || !(value >= min && value <= max)) {
      throw this.error(key, `must be a number from ${min} to ${max}, is ${JSON.stringify(value)}`);
    }
    return value;
  }

  boolean(key: string, fallback: boolean): boolean {
    const value = this.get(key) ?? fallback;
    if (typeof value !== "boolean")
      throw this.error(key, `must be true or false, is ${JSON.stringify(value)}`);
    return value;
  }

  string(key: string): string | undefined {
    const value = this.get(key);
    if (value === undefined || typeof value === "string") return value;
    throw this.error(key, `must be a string, is ${JSON.stringify(value)}`);
  }

  /** A list of whole numbers or strings; absent counts as empty. */
  list<T extends "number" | "string">(key: string, type: T): (T extends "number" ? number : string)[] {
    const value = this.get(key) ?? [];
    if (!Array.isArray(value) || !value.every((item) => typeof item === type)) {
      throw this.error(key, `must be a list of ${type}s`);
    }
    return value;
  }

  /** The object at `key`, or undefined. */
  object(key: string): ConfigReader | undefined {
    const value = this.get(key);
    if (value === undefined) return undefined;
    if (!isObject(value)) throw this.error(key, "must be an object");
    return new ConfigReader(value, this.#file, `${this.#path}${key}.`);
  }

  /** Refuses any value of `key` but `supported`; absent is fine. */
  only(key: string, supported: readonly unknown[]): void {
    const value = this.get(key);
    if (value === undefined || supported.includes(value)) return;
    const list = supported.map((item) => JSON.stringify(item)).join(", ");
    throw this.error(key, `${JSON.stringify(value)} is not supported; supported: ${list}`, "unsupported");
  }
}
