// Tool declarations and the choice among them.

import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { boundedArray, jsonObject, optional, reject, text } from "./schema.ts";

const tool = z.object({
  type: z.literal("function"),
  function: z.object({
    name: text(LIMITS.toolName, 1).regex(
      /^[A-Za-z0-9_.-]+$/,
      "may hold letters, digits, `_`, `.` and `-` only",
    ),
    description: optional(z.string()),
    /** A JSON schema: shown to the model, never compiled. */
    parameters: optional(jsonObject),
    strict: optional(z.boolean()),
  }),
});

export type Tool = z.output<typeof tool>;

export const tools = boundedArray(tool, 0, LIMITS.tools);

const named = z.object({
  type: z.literal("function"),
  function: z.object({ name: text(LIMITS.toolName, 1) }),
});

export const toolChoice = z.union([z.enum(["none", "auto", "required"]), named], {
  error: 'must be "none", "auto", "required" or {"type": "function", "function": {"name": ...}}',
});

export type ToolChoice = z.output<typeof toolChoice>;

/** Sizes and names across all tools, and that a named choice exists. */
export function checkTools(declared: Tool[], choice: ToolChoice | undefined): void {
  const names = new Set<string>();
  let total = 0;
  for (const [i, { function: fn }] of declared.entries()) {
    const size = JSON.stringify(fn).length;
    total += size;
    if (size > LIMITS.toolCharacters)
      reject(`tools[${i}]`, `must have at most ${LIMITS.toolCharacters} characters`);
    if (names.has(fn.name)) reject(`tools[${i}].function.name`, `repeats ${fn.name}`);
    names.add(fn.name);
  }
  if (total > LIMITS.toolsCharacters)
    reject("tools", `must have at most ${LIMITS.toolsCharacters} characters in all`);
  if (choice === undefined || choice === "none" || choice === "auto") return;
  if (declared.length === 0) reject("tool_choice", "needs tools");
  if (typeof choice === "object" && !names.has(choice.function.name)) {
    reject("tool_choice.function.name", "is not among the tools");
  }
}
