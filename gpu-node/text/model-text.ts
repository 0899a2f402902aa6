// A model folder's text side: tokenizer, chat template, end tokens, sampling defaults.

import type { ChatRequest } from "../contract/chat.ts";
import { ApiError } from "../contract/errors.ts";
import { LIMITS } from "../contract/limits.ts";
import { type OutputForm, outputFormOf } from "./parse/form.ts";
import { type ChatTemplate, loadChatTemplate } from "./template/chat-template.ts";
import { templateMessages, templateTools, userStrings } from "./template/variables.ts";
import { chooseMark } from "./tokenizer/control.ts";
import { loadTokenizer, readJson } from "./tokenizer/load.ts";
import { type Tokenizer, TokenizerFileError, tokenName } from "./tokenizer/tokenizer.ts";

/** What to do with a control token spelled in user text: refuse the request, or take it as the text it is. */
export type ControlPolicy = "refuse" | "text";

export interface PromptRules {
  policy: ControlPolicy;
  /** Tokens that the model's context holds; a prompt that cannot fit is refused before the work. */
  maxTokens: number;
}

/** From generation_config.json; applied where a request leaves a field out. */
export interface SamplingDefaults {
  temperature: number;
  topP: number;
  topK: number;
  minP: number;
  repetitionPenalty: number;
  /** undefined = up to the end of the context */
  maxTokens: number | undefined;
}

export interface ModelText {
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate | undefined;
  readonly form: OutputForm;
  /** Tokens that end an answer. */
  readonly eos: number[];
  readonly defaults: SamplingDefaults;
  readonly names: { bos: string; eos: string };
}

/** @throws TokenizerFileError naming the file that is missing or wrong */
export function loadModelText(dir: string): ModelText {
  const tokenizer = loadTokenizer(dir);
  const config = readJson(dir, "tokenizer_config.json") ?? {};
  const generation = readJson(dir, "generation_config.json") ?? {};
  const model = readJson(dir, "config.json") ?? {};
  const names = { bos: tokenName(config.bos_token), eos: tokenName(config.eos_token) };
  return {
    tokenizer,
    template: loadChatTemplate(dir, config),
    form: outputFormOf(tokenizer),
    eos: readEos(generation, model, tokenizer.control.byContent.get(names.eos)?.id),
    defaults: readDefaults(generation),
    names,
  };
}

/**
 * Prompt of a chat request.
 * @param bounded runs the template; what it throws is thrown
 * @throws ApiError control_token, template_error, unsupported_value
 */
export function chatPrompt(
  model: ModelText,
  request: ChatRequest,
  rules: PromptRules,
  bounded = (render: () => string) => render(),
): Int32Array {
  const { template, tokenizer } = model;
  if (template === undefined) {
    throw new ApiError("unsupported_value", "This model has no chat template; use /v1/completions.", {
      param: "messages",
    });
  }
  const strings = [...userStrings(request)];
  for (const { text, param } of strings) {
    if (param.endsWith(".content")) refuseHopeless(tokenizer, text, param, rules.maxTokens);
  }
  if (rules.policy === "refuse") {
    for (const { text, param } of strings) refuseControl(tokenizer, text, param);
  }
  const mark = chooseMark(strings.map(({ text }) => text));
  if (mark === undefined) {
    throw new ApiError("invalid_value", "The text uses every Unicode noncharacter.", { param: "messages" });
  }
  const guard = (text: string, inner?: boolean) => tokenizer.control.protect(text, mark, inner);
  const tools = request.tools?.length && request.tool_choice !== "none" ? request.tools : undefined;
  const input = {
    messages: templateMessages(request.messages, template, guard),
    tools: tools && templateTools(tools, guard),
    variables: {
      bos_token: model.names.bos,
      eos_token: model.names.eos,
      ...request.chat_template_kwargs,
      ...(request.reasoning_effort !== undefined && { reasoning_effort: guard(request.reasoning_effort) }),
    },
  };
  const rendered = bounded(() => template.render(input));
  const ids: number[] = [];
  for (const part of tokenizer.control.split(rendered, mark)) {
    if (typeof part === "string") append(ids, tokenizer.encodeText(part));
    else ids.push(part.id);
  }
  return Int32Array.from(ids);
}

/**
 * Prompt of a completion request: the text as it is, after the model's BOS token where it has one.
 * @throws ApiError control_token
 */
export function plainPrompt(model: ModelText, text: string, param: string, rules: PromptRules): Int32Array {
  refuseHopeless(model.tokenizer, text, param, rules.maxTokens);
  if (rules.policy === "refuse") refuseControl(model.tokenizer, text, param);
  const ids = [...model.tokenizer.prefix];
  append(ids, model.tokenizer.encodeText(text));
  return Int32Array.from(ids);
}

function refuseControl(tokenizer: Tokenizer, text: string, param: string): void {
  const token = tokenizer.control.spelledIn(text);
  if (token === undefined) return;
  throw new ApiError("control_token", `${param} contains the control token ${token}.`, { param });
}

/** No token is longer than the longest: so many characters are at least so many tokens. */
function refuseHopeless(tokenizer: Tokenizer, text: string, param: string, maxTokens: number): void {
  const least = Math.ceil(text.length / tokenizer.bytes.longest);
  if (least < maxTokens) return;
  throw new ApiError(
    "context_length_exceeded",
    `${param} has at least ${least} tokens; this model's context is ${maxTokens}.`,
    { param },
  );
}

/** push(...) would overflow the stack at 1e5 ids. */
function append(ids: number[], more: number[]): void {
  for (const id of more) ids.push(id);
}

/** generation_config.json first, then config.json (text_config of multimodal ones), then the tokenizer's. */
function readEos(
  generation: Record<string, unknown>,
  config: Record<string, unknown>,
  named?: number,
): number[] {
  const nested = config.text_config as Record<string, unknown> | undefined;
  const value = generation.eos_token_id ?? config.eos_token_id ?? nested?.eos_token_id ?? named ?? [];
  return [value].flat().filter((id): id is number => Number.isInteger(id));
}

function readDefaults(generation: Record<string, unknown>): SamplingDefaults {
  // Outside its range a default would fail every request that leaves the field out.
  const number = (key: string, low: number, high = Number.MAX_VALUE) => {
    const value = generation[key];
    if (typeof value !== "number" || !Number.isFinite(value)) return undefined;
    if (value >= low && value <= high) return value;
    const range = high === Number.MAX_VALUE ? `at least ${low}` : `from ${low} to ${high}`;
    throw new TokenizerFileError(`generation_config.json: ${key} is ${value}, it must be ${range}`);
  };
  return {
    temperature: generation.do_sample === false ? 0 : (number("temperature", 0) ?? 1),
    topP: number("top_p", 0, 1) ?? 1,
    topK: Math.max(0, Math.floor(number("top_k", -1) ?? 0)),
    minP: number("min_p", 0, 1) ?? 0,
    repetitionPenalty:
      number("repetition_penalty", LIMITS.leastRepetitionPenalty, LIMITS.repetitionPenalty) ?? 1,
    maxTokens: number("max_new_tokens", 1),
  };
}
