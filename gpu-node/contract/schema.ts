// zod schemas that fail early and errors that name the field.

import { z } from "zod";
import { ApiError, type ErrorCode } from "./errors.ts";

/** The whole description of an absent field; `validate` tells it from a wrong one. */
export const REQUIRED = "is required";

/** Absent and null mean the same in the OpenAI API. */
export const optional = <T extends z.ZodType>(schema: T) =>
  schema.nullish().transform((value) => value ?? undefined);

/** An array whose length is checked before any element is looked at: 1e6 bad elements cost one comparison. */
export const boundedArray = <T extends z.ZodType>(element: T, min: number, max: number) =>
  z
    .custom<unknown[]>((value) => Array.isArray(value), {
      error: ({ input }) => (input === undefined ? REQUIRED : `must be an array, not ${kindOf(input)}`),
      abort: true,
    })
    .refine((value) => value.length >= min, { error: `must have at least ${min} entries`, abort: true })
    .refine((value) => value.length <= max, { error: `must have at most ${max} entries`, abort: true })
    .pipe(z.array(element));

/** A string as it is, or whatever `schema` accepts; `error` describes both when the value is neither. */
export const stringOr = <T extends z.ZodType>(schema: T, error: string) =>
  z.unknown().transform((value, context): string | z.output<T> => {
    if (typeof value === "string") return value;
    const result = Array.isArray(value) ? schema.safeParse(value, { reportInput: true }) : undefined;
    if (result?.success) return result.data;
    if (result === undefined) {
      context.addIssue(value === undefined ? REQUIRED : error);
    } else {
      for (const issue of result.error.issues) {
        context.addIssue({ code: "custom", message: describe(issue), path: [...issue.path] });
      }
    }
    return z.NEVER;
  });

export const text = (max: number, min = 0) =>
  z
    .string()
    .refine((value) => value.length >= min, {
      error: min === 1 ? "must not be empty" : `must have at least ${min} characters`,
    })
    .refine((value) => value.length <= max, { error: `must have at most ${max} characters` });

/** A finite number in [min, max]. */
export const number = (min: number, max: number) => z.number().min(min).max(max);

/** A safe integer in [min, max]. */
export const integer = (min: number, max: number) =>
  z.number().min(min).max(max).refine(Number.isSafeInteger, "must be an integer");

/** The JSON value itself, unchecked; its size is bounded by the body. */
export const jsonObject = z.custom<Record<string, unknown>>(
  (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  { error: "must be an object" },
);

/** `messages[3].content` from zod's path. */
export function fieldPath(path: readonly PropertyKey[]): string {
  let out = "";
  for (const key of path) {
    if (typeof key === "number") out += `[${key}]`;
    else out += out === "" ? clip(String(key)) : `.${clip(String(key))}`;
  }
  return out;
}

/**
 * Applies a schema to a parsed body.
 * @throws ApiError invalid_value or missing_field with the first offending field as `param`
 */
export function validate<T extends z.ZodType>(schema: T, value: unknown): z.output<T> {
  const result = schema.safeParse(value, { reportInput: true });
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  const param = fieldPath(issue.path);
  const problem = describe(issue);
  const code: ErrorCode = problem === REQUIRED ? "missing_field" : "invalid_value";
  throw new ApiError(code, `${param || "body"} ${problem}.`, { param });
}

/** Throws invalid_value for a rule that spans fields. */
export function reject(param: string, message: string): never {
  throw new ApiError("invalid_value", `${param} ${message}.`, { param });
}

/** Throws unsupported_value: the request is well formed but this server does not do it. */
export function unsupported(param: string, message: string): never {
  throw new ApiError("unsupported_value", `${param} ${message}.`, { param });
}

export function kindOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "an array";
  if (typeof value === "number" && !Number.isFinite(value)) return "one beyond the range of a double";
  if (typeof value === "object") return "an object";
  return `a ${typeof value}`;
}

/** A user's string as it may stand in an error message. */
export function clip(value: string, length = 64): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what must not reach a log or a header
  const clean = value.toWellFormed().replace(/[\u0000-\u001f\u007f]/g, "\ufffd");
  return clean.length > length ? `${clean.slice(0, length).toWellFormed()}...` : clean;
}

const ARTICLES: Record<string, string> = {
  string: "a string",
  number: "a number",
  boolean: "true or false",
  array: "an array",
  object: "an object",
  record: "an object",
};

function describe(issue: z.core.$ZodIssue): string {
  switch (issue.code) {
    case "invalid_type": {
      if (issue.input === undefined) return REQUIRED;
      const wanted = ARTICLES[issue.expected] ?? issue.expected;
      return `must be ${wanted}, not ${kindOf(issue.input)}`;
    }
    case "too_small":
      return `must be ${issue.inclusive === false ? "greater than" : "at least"} ${issue.minimum}`;
    case "too_big":
      return `must be ${issue.inclusive === false ? "less than" : "at most"} ${issue.maximum}`;
    case "invalid_value":
      return `must be ${issue.values.map((value) => JSON.stringify(value)).join(" or ")}`;
    default:
      return issue.message;
  }
}
