// What the Workers AI dialect sends: one envelope, or native frames `data: {"response": ..., "p": ...}`.

import { z } from "zod";
import { ApiError, isErrorCode } from "../../gpu-node/contract/errors.ts";
import type { Renderer } from "../answer.ts";
import { DONE_EVENT, type EventReader, event } from "../stream.ts";

const toolCall = z.looseObject({ function: z.object({ name: z.string(), arguments: z.string() }) });

/** A whole chat or text completion, as far as it is read here. */
const completion = z.looseObject({
  choices: z
    .array(
      z.looseObject({
        text: z.string().nullish(),
        message: z
          .looseObject({ content: z.string().nullish(), tool_calls: z.array(toolCall).nullish() })
          .nullish(),
      }),
    )
    .min(1),
  usage: z.unknown(),
});

interface Delta {
  content?: string | null;
  reasoning?: string | null;
  reasoning_content?: string | null;
  tool_calls?: unknown[] | null;
}

interface Chunk {
  choices?: { index?: number; delta?: Delta; text?: string }[];
  usage?: unknown;
  error?: { message?: string; code?: string };
}

export const renderer: Renderer = { dialect: "workers-ai", json: envelope, stream: frames };

/**
 * `result` holds the classic native fields and the whole completion beside them, as models of either generation answer.
 */
function envelope(text: string): string {
  const answer = completion.safeParse(parse(text));
  if (!answer.success) throw unusable();
  const [choice] = answer.data.choices;
  const calls = choice.message?.tool_calls;
  const result = {
    response: choice.message?.content ?? choice.text ?? "",
    ...(calls?.length ? { tool_calls: calls.map(nativeCall) } : {}),
    ...answer.data,
  };
  return JSON.stringify({ result, success: true, errors: [], messages: [] });
}

/** Arguments as an object where they are one: the native form. */
function nativeCall(call: z.output<typeof toolCall>): object {
  const { name, arguments: text } = call.function;
  return { name, arguments: parse(text) ?? text };
}

/** One frame per piece of text, then one with the usage, then `[DONE]`. */
async function* frames(events: EventReader): AsyncGenerator<Uint8Array> {
  let usage: unknown;
  for await (const data of events.events()) {
    const chunk = parse(data) as Chunk | undefined;
    if (typeof chunk !== "object" || chunk === null) throw unusable();
    if (chunk.error) throw nodeError(chunk.error);
    usage = chunk.usage ?? usage;
    for (const { index, delta, text } of chunk.choices ?? []) {
      if (index) continue;
      const response = delta?.content ?? text ?? "";
      const reasoning = delta?.reasoning_content ?? delta?.reasoning;
      if (response === "" && !reasoning && !delta?.tool_calls?.length) continue;
      yield event({
        response,
        ...(reasoning ? { reasoning_content: reasoning } : {}),
        ...(delta?.tool_calls?.length ? { tool_calls: delta.tool_calls } : {}),
        p: padding(),
      });
    }
  }
  yield event({ response: "", ...(usage ? { usage } : {}), p: padding() });
  yield DONE_EVENT;
}

function nodeError({ code, message = "The node failed." }: NonNullable<Chunk["error"]>): ApiError {
  return new ApiError(isErrorCode(code) ? code : "upstream_error", message);
}

/** Random length, so that the size of a frame does not tell the length of its token. */
function padding(): string {
  const [random] = crypto.getRandomValues(new Uint8Array(1));
  return "abcdefghijklmnopqrstuvwxyz012345".slice(0, random & 31);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function unusable(): ApiError {
  return new ApiError("upstream_error", "The node's answer was not usable.");
}
