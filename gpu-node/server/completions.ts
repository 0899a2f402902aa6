// POST /v1/completions.

import { randomUUID } from "node:crypto";
import type { Context } from "hono";
import {
  type CompletionRequest,
  parseCompletionRequest,
  refuseUnsupportedCompletion,
} from "../contract/completions.ts";
import { reject } from "../contract/schema.ts";
import { OutputParser, type Piece } from "../text/parse/output.ts";
import type { IndexedEvent, SequencePlan } from "./generation.ts";
import { type LogprobEntry, legacyLogprobs } from "./logprobs.ts";
import { checkModel, type GpuNode } from "./node.ts";
import type { Authentic } from "./receive.ts";
import { type Dialect, respond, usageBlock } from "./respond.ts";
import { checkToken, samplingParams, stopStrings, tokenBudget } from "./sampling.ts";
import type { SequenceFinish, SequenceUsage } from "./sequence.ts";

export async function completions(node: GpuNode, context: Context, received: Authentic): Promise<Response> {
  const started = node.clock();
  const request = parseCompletionRequest(received.body);
  checkModel(node, request.model);
  refuseUnsupportedCompletion(request);
  const plans = await planCompletions(node, request, received, context.req.raw.signal);
  const generation = node.generations.start(plans, context.req.raw.signal);
  const dialect = new CompletionDialect(request, node.modelNames[0], Math.floor(started / 1000));
  return respond(node, context, generation, dialect, request.stream ?? false, started);
}

/** Choice `prompt * n + choice`, as OpenAI numbers them. */
async function planCompletions(
  node: GpuNode,
  request: CompletionRequest,
  received: Authentic,
  signal: AbortSignal,
): Promise<SequencePlan[]> {
  const { text, engine } = node;
  const stopTokens = [...(request.ignore_eos ? [] : text.eos), ...(request.stop_token_ids ?? [])];
  const plans: SequencePlan[] = [];
  for (const [i, input] of request.prompt.entries()) {
    const param = request.prompt.length > 1 ? `prompt[${i}]` : "prompt";
    const prompt =
      typeof input === "string"
        ? await node.prompts.make(
            { kind: "plain", text: input, param, policy: node.policy, maxTokens: engine.maxModelLen },
            received.size,
            signal,
          )
        : tokenPrompt(input, engine.vocabSize, param);
    if (prompt.length === 0) reject(param, "must not be empty");
    const { maxTokens, minTokens } = tokenBudget(
      request,
      text.defaults,
      prompt.length,
      engine.maxModelLen,
      param,
    );
    for (let choice = 0; choice < (request.n ?? 1); choice++) {
      plans.push({
        request: {
          prompt,
          sampling: samplingParams(request, text.defaults, engine.vocabSize, choice, request.logprobs ?? -1),
          maxTokens,
          minTokens,
          stopTokens,
          salt: received.account,
          label: received.requestId,
        },
        options: {
          tokenizer: text.tokenizer,
          parser: new OutputParser(text.tokenizer, { form: { tools: undefined, think: undefined } }),
          stopTokens,
          stops: stopStrings(request),
          minTokens,
        },
      });
    }
  }
  return plans;
}

interface Choice {
  text: string;
  logprobs: LogprobEntry[];
  /** Characters of the log probabilities already sent in a stream. */
  offset: number;
  finish: SequenceFinish | undefined;
}

class CompletionDialect implements Dialect {
  private readonly request: CompletionRequest;
  private readonly head: { id: string; object: "text_completion"; created: number; model: string };
  private readonly choices: Choice[];
  private readonly usages: SequenceUsage[] = [];

  constructor(request: CompletionRequest, model: string, created: number) {
    this.request = request;
    this.head = { id: `cmpl-${randomUUID()}`, object: "text_completion", created, model };
    const length = request.prompt.length * (request.n ?? 1);
    this.choices = Array.from({ length }, () => ({ text: "", logprobs: [], offset: 0, finish: undefined }));
  }

  collect({ index, event }: IndexedEvent): void {
    const choice = this.choices[index];
    if (event.type === "end") {
      choice.finish = event.finish;
      this.usages[index] = event.usage;
      return;
    }
    choice.text += textOf(event.pieces);
    choice.logprobs.push(...event.logprobs);
  }

  whole(): object {
    return {
      ...this.head,
      choices: this.choices.map(({ text, logprobs, finish }, index) => ({
        index,
        text,
        logprobs: this.request.logprobs === undefined ? null : legacyLogprobs(logprobs, 0),
        finish_reason: finish,
      })),
      usage: this.usage(),
    };
  }

  chunks({ index, event }: IndexedEvent): object[] {
    if (event.type === "end") {
      this.usages[index] = event.usage;
      return [this.chunk(index, "", [], event.finish)];
    }
    return [this.chunk(index, textOf(event.pieces), event.logprobs)];
  }

  usageChunk(): object | undefined {
    if (!this.request.stream_options?.include_usage) return undefined;
    return { ...this.head, choices: [], usage: this.usage() };
  }

  private usage() {
    const n = this.request.n ?? 1;
    return usageBlock(
      this.usages.filter((_, index) => index % n === 0),
      this.usages,
    );
  }

  private chunk(index: number, text: string, entries: LogprobEntry[], finish?: SequenceFinish): object {
    const choice = this.choices[index];
    const wanted = this.request.logprobs !== undefined && entries.length > 0;
    const logprobs = wanted ? legacyLogprobs(entries, choice.offset) : null;
    for (const { token } of entries) choice.offset += token.length;
    return {
      ...this.head,
      choices: [{ index, text, logprobs, finish_reason: finish ?? null }],
      ...(this.request.stream_options?.include_usage && { usage: null }),
    };
  }
}

/** Without tools and reasoning in the form, every piece is content. */
function textOf(pieces: Piece[]): string {
  return pieces.map((piece) => (piece.kind === "content" ? piece.text : "")).join("");
}

function tokenPrompt(ids: number[], vocabSize: number, param: string): Int32Array {
  const bad = ids.findIndex((id) => id >= vocabSize);
  if (bad >= 0) checkToken(ids[bad], vocabSize, `${param}[${bad}]`);
  return Int32Array.from(ids);
}
