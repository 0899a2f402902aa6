// POST /v1/chat/completions.

import { randomUUID } from "node:crypto";
import type { Context } from "hono";
import { type ChatRequest, parseChatRequest, refuseUnsupportedChat } from "../contract/chat.ts";
import { unsupported } from "../contract/schema.ts";
import { OutputParser, type Piece } from "../text/parse/output.ts";
import type { IndexedEvent, SequencePlan } from "./generation.ts";
import type { LogprobEntry } from "./logprobs.ts";
import { checkModel, type GpuNode } from "./node.ts";
import type { Authentic } from "./receive.ts";
import { type Dialect, respond, usageBlock } from "./respond.ts";
import { samplingParams, stopStrings, tokenBudget } from "./sampling.ts";
import type { SequenceFinish, SequenceUsage } from "./sequence.ts";

export async function chatCompletions(
  node: GpuNode,
  context: Context,
  received: Authentic,
): Promise<Response> {
  const started = node.clock();
  const request = parseChatRequest(received.body);
  checkModel(node, request.model);
  refuseUnsupportedChat(request, received.body);
  if (request.tools?.length && node.text.form.tools === undefined) {
    unsupported("tools", "are not supported by this model");
  }
  const plans = await planChat(node, request, received, context.req.raw.signal);
  const generation = node.generations.start(plans, context.req.raw.signal);
  const dialect = new ChatDialect(request, node.modelNames[0], Math.floor(started / 1000));
  return respond(node, context, generation, dialect, request.stream ?? false, started);
}

async function planChat(
  node: GpuNode,
  request: ChatRequest,
  received: Authentic,
  signal: AbortSignal,
): Promise<SequencePlan[]> {
  const { text, engine } = node;
  const prompt = await node.prompts.make(
    { kind: "chat", request, policy: node.policy, maxTokens: engine.maxModelLen },
    received.size,
    signal,
  );
  const { maxTokens, minTokens } = tokenBudget(
    request,
    text.defaults,
    prompt.length,
    engine.maxModelLen,
    "messages",
  );
  const form = {
    think: text.form.think,
    tools: request.tools?.length && request.tool_choice !== "none" ? text.form.tools : undefined,
  };
  const stopTokens = [...(request.ignore_eos ? [] : text.eos), ...(request.stop_token_ids ?? [])];
  const topLogprobs = request.logprobs ? (request.top_logprobs ?? 0) : -1;
  return Array.from({ length: request.n ?? 1 }, (_, choice) => ({
    request: {
      prompt,
      sampling: samplingParams(request, text.defaults, engine.vocabSize, choice, topLogprobs),
      maxTokens,
      minTokens,
      stopTokens,
      salt: received.account,
      label: received.requestId,
    },
    options: {
      tokenizer: text.tokenizer,
      parser: new OutputParser(text.tokenizer, {
        form,
        tools: request.tools,
        reasoning: startsThinking(prompt, form.think),
      }),
      stopTokens,
      stops: stopStrings(request),
      minTokens,
    },
  }));
}

/** The template opened a think block, perhaps with a line break after the tag. */
function startsThinking(prompt: Int32Array, think: { open: number; close: number } | undefined): boolean {
  return (
    think !== undefined &&
    prompt.subarray(-3).lastIndexOf(think.open) > prompt.subarray(-3).lastIndexOf(think.close)
  );
}

interface ToolCallState {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

interface Choice {
  begun: boolean;
  content: string;
  reasoning: string;
  toolCalls: ToolCallState[];
  logprobs: LogprobEntry[];
  finish: SequenceFinish | undefined;
}

class ChatDialect implements Dialect {
  private readonly request: ChatRequest;
  private readonly head: { id: string; created: number; model: string };
  private readonly choices: Choice[];
  private readonly usages: SequenceUsage[] = [];

  constructor(request: ChatRequest, model: string, created: number) {
    this.request = request;
    this.head = { id: `chatcmpl-${randomUUID()}`, created, model };
    this.choices = Array.from({ length: request.n ?? 1 }, () => ({
      begun: false,
      content: "",
      reasoning: "",
      toolCalls: [],
      logprobs: [],
      finish: undefined,
    }));
  }

  collect({ index, event }: IndexedEvent): void {
    const choice = this.choices[index];
    if (event.type === "end") {
      choice.finish = event.finish;
      this.usages[index] = event.usage;
      return;
    }
    choice.logprobs.push(...event.logprobs);
    for (const piece of event.pieces) {
      if (piece.kind === "content") choice.content += piece.text;
      if (piece.kind === "reasoning") choice.reasoning += piece.text;
      if (piece.kind === "tool_start") choice.toolCalls.push(toolCall(piece.id, piece.name));
      if (piece.kind === "tool_arguments") choice.toolCalls[piece.index].function.arguments += piece.text;
    }
  }

  whole(): object {
    return {
      ...this.head,
      object: "chat.completion",
      choices: this.choices.map(({ content, reasoning, toolCalls, logprobs, finish }, index) => ({
        index,
        message: {
          role: "assistant",
          content: content === "" && (toolCalls.length > 0 || reasoning !== "") ? null : content,
          refusal: null,
          ...(reasoning !== "" && { reasoning, reasoning_content: reasoning }),
          ...(toolCalls.length > 0 && { tool_calls: toolCalls }),
        },
        logprobs: this.request.logprobs ? { content: logprobs, refusal: null } : null,
        finish_reason: finish,
      })),
      usage: usageBlock(this.usages.slice(0, 1), this.usages),
    };
  }

  chunks({ index, event }: IndexedEvent): object[] {
    if (event.type === "end") {
      this.usages[index] = event.usage;
      const first = this.choices[index].begun
        ? []
        : [this.chunk(index, this.opening(index, { content: "" }), [])];
      return [...first, this.chunk(index, {}, [], event.finish)];
    }
    const deltas = event.pieces.map((piece) => delta(piece));
    if (deltas.length === 0) deltas.push({ content: "" });
    return deltas.map((value, i) =>
      this.chunk(index, this.opening(index, value), i === 0 ? event.logprobs : []),
    );
  }

  usageChunk(): object | undefined {
    if (!this.request.stream_options?.include_usage) return undefined;
    return { ...this.chunkHead(), choices: [], usage: usageBlock(this.usages.slice(0, 1), this.usages) };
  }

  /** The first delta of every choice carries the role, without which openai's `stream()` throws. */
  private opening(index: number, value: object): object {
    const choice = this.choices[index];
    if (choice.begun) return value;
    choice.begun = true;
    return { role: "assistant", ...value };
  }

  private chunk(index: number, value: object, logprobs: LogprobEntry[], finish?: SequenceFinish): object {
    const reported =
      this.request.logprobs && logprobs.length > 0 ? { content: logprobs, refusal: null } : null;
    return {
      ...this.chunkHead(),
      choices: [{ index, delta: value, logprobs: reported, finish_reason: finish ?? null }],
      ...(this.request.stream_options?.include_usage && { usage: null }),
    };
  }

  private chunkHead() {
    return { ...this.head, object: "chat.completion.chunk" };
  }
}

function delta(piece: Piece): object {
  switch (piece.kind) {
    case "content":
      return { content: piece.text };
    case "reasoning":
      return { reasoning: piece.text, reasoning_content: piece.text };
    case "tool_start":
      return { tool_calls: [{ index: piece.index, ...toolCall(piece.id, piece.name) }] };
    case "tool_arguments":
      return { tool_calls: [{ index: piece.index, function: { arguments: piece.text } }] };
  }
}

const toolCall = (id: string, name: string): ToolCallState => ({
  id,
  type: "function",
  function: { name, arguments: "" },
});
