// A validated chat request as the variables of a template, every user string passed through one function first.

import type { ChatRequest } from "../../contract/chat.ts";
import type { ChatMessage, TextPart, ToolCall } from "../../contract/messages.ts";
import type { Tool } from "../../contract/tools.ts";
import type { ChatTemplate } from "./chat-template.ts";

/** How a user string enters the template. `inner` as in ControlTokens.protect. */
export type Guard = (text: string, inner?: boolean) => string;

type Shape = Pick<ChatTemplate, "takesParts" | "takesArgumentText">;

export function templateMessages(
  messages: ChatMessage[],
  shape: Shape,
  guard: Guard,
): Record<string, unknown>[] {
  return messages.map((message) => templateMessage(message, shape, guard));
}

/** Tools as declared; their JSON is printed by the template. */
export function templateTools(tools: Tool[], guard: Guard): unknown[] {
  return tools.map((tool) => guardJson(tool, (text) => guard(text, false)));
}

/** Every user string of a request, for searching control tokens in; the pieces of one content also joined. */
export function* userStrings(request: ChatRequest): Generator<{ text: string; param: string }> {
  for (const [i, message] of request.messages.entries()) {
    const param = `messages[${i}]`;
    if (message.content !== undefined)
      yield { text: joinParts(message.content, ""), param: `${param}.content` };
    if (message.name !== undefined) yield { text: message.name, param: `${param}.name` };
    if (message.role === "tool") yield { text: message.tool_call_id, param: `${param}.tool_call_id` };
    if (message.role === "assistant") {
      const reasoning = message.reasoning_content ?? message.reasoning;
      if (reasoning !== undefined) yield { text: reasoning, param: `${param}.reasoning_content` };
      for (const [j, call] of (message.tool_calls ?? []).entries()) {
        const at = `${param}.tool_calls[${j}]`;
        yield { text: call.id, param: `${at}.id` };
        yield { text: call.function.name, param: `${at}.function.name` };
        yield { text: argumentText(call), param: `${at}.function.arguments` };
      }
    }
  }
  for (const [i, tool] of (request.tools ?? []).entries()) {
    yield { text: JSON.stringify(tool), param: `tools[${i}]` };
  }
}

function templateMessage(message: ChatMessage, shape: Shape, guard: Guard): Record<string, unknown> {
  // Templates of our families know "system"; "developer" is OpenAI's newer name for it.
  const role = message.role === "developer" ? "system" : message.role;
  const out: Record<string, unknown> = { role, content: templateContent(message.content, shape, guard) };
  if (message.name !== undefined) out.name = guard(message.name);
  if (message.role === "tool") out.tool_call_id = guard(message.tool_call_id);
  if (message.role !== "assistant") return out;
  const reasoning = message.reasoning_content ?? message.reasoning;
  if (reasoning !== undefined) out.reasoning_content = out.reasoning = guard(reasoning);
  if (message.tool_calls?.length) {
    out.tool_calls = message.tool_calls.map((call) => ({
      id: guard(call.id),
      type: "function",
      function: { name: guard(call.function.name), arguments: templateArguments(call, shape, guard) },
    }));
  }
  return out;
}

function templateContent(
  content: string | TextPart[] | undefined,
  { takesParts }: Shape,
  guard: Guard,
): unknown {
  if (content === undefined) return null;
  if (typeof content === "string") return guard(content);
  if (takesParts) return content.map(({ type, text }) => ({ type, text: guard(text) }));
  return guard(joinParts(content, "\n"));
}

function joinParts(content: string | TextPart[], separator: string): string {
  return typeof content === "string" ? content : content.map(({ text }) => text).join(separator);
}

function argumentText(call: ToolCall): string {
  const { arguments: value } = call.function;
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Text where the template prints text: what the model wrote comes back to it unchanged. Else an object. */
function templateArguments(call: ToolCall, { takesArgumentText }: Shape, guard: Guard): unknown {
  const text = argumentText(call);
  if (takesArgumentText) return guard(text);
  try {
    return guardJson(JSON.parse(text), guard);
  } catch {
    return guard(text);
  }
}

/** A copy with every string, keys included, guarded. Depth is bounded where the body was parsed. */
function guardJson(value: unknown, guard: Guard): unknown {
  if (typeof value === "string") return guard(value);
  if (Array.isArray(value)) return value.map((item) => guardJson(item, guard));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [guard(key, false), guardJson(item, guard)]),
  );
}
