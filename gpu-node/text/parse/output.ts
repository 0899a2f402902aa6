// What a model's tokens mean: answer text, reasoning, tool calls. Structure is recognised by token id; the same marker
// spelled in ordinary tokens is text.

import { Detokenizer } from "../detokenize.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";

export type Piece =
  | { kind: "content" | "reasoning"; text: string }
  | { kind: "tool_start"; index: number; id: string; name: string }
  | { kind: "tool_arguments"; index: number; text: string };

/** Token ids of Kimi's tool call form. */
export interface ToolMarkers {
  sectionBegin: number;
  sectionEnd: number;
  callBegin: number;
  argumentBegin: number;
  callEnd: number;
}

/** Structure that a model's vocabulary offers. */
export interface OutputForm {
  tools: ToolMarkers | undefined;
  think: { open: number; close: number } | undefined;
}

export function outputFormOf(tokenizer: Tokenizer): OutputForm {
  const id = (content: string) => tokenizer.control.byContent.get(content)?.id;
  const [sectionBegin, sectionEnd, callBegin, argumentBegin, callEnd] = [
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
  ].map(id);
  const complete =
    sectionBegin !== undefined &&
    sectionEnd !== undefined &&
    callBegin !== undefined &&
    argumentBegin !== undefined &&
    callEnd !== undefined;
  const [open, close] = [id("<think>"), id("</think>")];
  return {
    tools: complete ? { sectionBegin, sectionEnd, callBegin, argumentBegin, callEnd } : undefined,
    think: open !== undefined && close !== undefined ? { open, close } : undefined,
  };
}

type State = "content" | "reasoning" | "between" | "header" | "arguments";

/** A header longer than this is not one; a model gone wrong must not fill memory. */
const MAX_HEADER = 1024;

/**
 * Kimi's form, after which nothing but more calls is expected:
 *
 *     text <section_begin> <call_begin>functions.NAME:IDX<argument_begin>{...}<call_end> ... <section_end>
 *          between         header                         arguments          between
 */
export class OutputParser {
  private readonly tokenizer: Tokenizer;
  private readonly form: OutputForm;
  private state: State;
  private decoder = new Detokenizer();
  private header = "";
  private argumentBytes = 0;
  private readonly ids = new Set<string>();

  /**
   * @param form leave `tools` or `think` undefined where the request must not have them parsed
   * @param reasoning the prompt ended with the opening think tag
   */
  constructor(tokenizer: Tokenizer, form: OutputForm, reasoning = false) {
    this.tokenizer = tokenizer;
    this.form = form;
    this.state = reasoning && form.think ? "reasoning" : "content";
  }

  /** Calls begun so far. */
  get toolCalls(): number {
    return this.ids.size;
  }

  get inReasoning(): boolean {
    return this.state === "reasoning";
  }

  push(token: number): Piece[] {
    const { tools, think } = this.form;
    if (think && token === think.open) return this.enter("reasoning");
    if (think && token === think.close) return this.enter("content");
    if (tools) {
      if (token === tools.sectionBegin || token === tools.sectionEnd) return this.enter("between");
      if (token === tools.callBegin) return this.enter("header");
      if (token === tools.argumentBegin && this.state === "header") return this.beginCall();
      if (token === tools.callEnd)
        return this.state === "header" ? this.beginCall(true) : this.enter("between");
    }
    return this.text(this.decoder.push(this.tokenizer.bytes.of(token)));
  }

  /** Everything left when the sequence has ended. */
  finish(): Piece[] {
    return this.enter("between");
  }

  private text(text: string): Piece[] {
    if (text === "") return [];
    switch (this.state) {
      case "content":
      case "reasoning":
        return [{ kind: this.state, text }];
      case "arguments":
        this.argumentBytes += text.length;
        return [{ kind: "tool_arguments", index: this.ids.size - 1, text }];
      case "header":
        if (this.header.length < MAX_HEADER) this.header += text;
        return [];
      case "between":
        return [];
    }
  }

  /** Leaves the current state, flushing its text, for `state`. */
  private enter(state: State): Piece[] {
    const pieces = this.text(this.decoder.flush());
    if (this.state === "arguments" && this.argumentBytes === 0) {
      pieces.push({ kind: "tool_arguments", index: this.ids.size - 1, text: "{}" });
    }
    this.decoder = new Detokenizer();
    this.state = state;
    this.header = "";
    this.argumentBytes = 0;
    return pieces;
  }

  /** The header is complete: `functions.NAME:IDX`, which is also the id that the model wants to see again. */
  private beginCall(ended = false): Piece[] {
    this.header += this.decoder.flush();
    const header = this.header.trim();
    const name = /^(?:functions\.)?(.*?)(?::\d+)?$/s.exec(header)?.[1] ?? "";
    if (name === "") return this.enter("between");
    const index = this.ids.size;
    const id = this.ids.has(header) || !/:\d+$/.test(header) ? `functions.${name}:${index}` : header;
    this.ids.add(this.ids.has(id) ? `${id}-${index}` : id);
    const start: Piece = { kind: "tool_start", index, id: [...this.ids][index], name };
    this.enter("arguments");
    return ended ? [start, ...this.enter("between")] : [start];
  }
}
