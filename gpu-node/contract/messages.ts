// Chat messages of the OpenAI API, text only.

import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { boundedArray, clip, kindOf, optional, REQUIRED, stringOr, text } from "./schema.ts";

const textPart = z
  .object({ type: z.string(), text: optional(z.string()) })
  .transform((part, context): { type: "text"; text: string } => {
    if (part.type === "text" && part.text !== undefined) return { type: "text", text: part.text };
    const message =
      part.type === "text"
        ? REQUIRED
        : `is ${JSON.stringify(clip(part.type))}; this server takes parts of type "text" only`;
    context.issues.push({
      code: "custom",
      message,
      path: [part.type === "text" ? "text" : "type"],
      input: part,
    });
    return z.NEVER;
  });

export type TextPart = z.output<typeof textPart>;

const content = stringOr(
  boundedArray(textPart, 0, LIMITS.contentParts),
  "must be a string or an array of text parts",
);

const name = optional(text(LIMITS.identifier));

const toolCall = z.object({
  id: text(LIMITS.identifier, 1),
  type: optional(z.literal("function")),
  function: z.object({
    name: text(LIMITS.toolName, 1),
    /** JSON text; some clients send the object itself. */
    arguments: z.union([z.string(), z.record(z.string(), z.unknown())], {
      error: "must be a string that holds JSON",
    }),
  }),
});

const assistant = z
  .object({
    role: z.literal("assistant"),
    content: optional(content),
    name,
    tool_calls: optional(boundedArray(toolCall, 0, LIMITS.toolCallsPerMessage)),
    reasoning: optional(z.string()),
    reasoning_content: optional(z.string()),
    refusal: optional(z.string()),
  })
  .superRefine((message, context) => {
    const said = message.content ?? message.reasoning ?? message.reasoning_content ?? message.refusal;
    if (said === undefined && !message.tool_calls?.length) {
      context.addIssue({
        code: "custom",
        message: "is required unless there are tool_calls",
        path: ["content"],
      });
    }
  });

const ROLES = ["system", "developer", "user", "assistant", "tool"];

const message = z.discriminatedUnion(
  "role",
  [
    z.object({ role: z.literal("system"), content, name }),
    z.object({ role: z.literal("developer"), content, name }),
    z.object({ role: z.literal("user"), content, name }),
    assistant,
    z.object({ role: z.literal("tool"), content, name, tool_call_id: text(LIMITS.identifier, 1) }),
  ],
  {
    error: ({ code, input }) => {
      if (code !== "invalid_union") return `must be an object, not ${kindOf(input)}`;
      const role = (input as { role?: unknown }).role;
      const found = typeof role === "string" ? JSON.stringify(clip(role)) : kindOf(role);
      return role === undefined ? REQUIRED : `is ${found}; it must be one of ${ROLES.join(", ")}`;
    },
  },
);

export const messages = boundedArray(message, 1, LIMITS.messages);

export type ChatMessage = z.output<typeof message>;
export type ToolCall = z.output<typeof toolCall>;
