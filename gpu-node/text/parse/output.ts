// What a model's tokens mean: answer text, reasoning, tool calls. Structure is recognised by token id; the same marker
// spelled in ordinary tokens is text.

import { randomUUID } from "node:crypto";
import type { Tool } from "../../contract/tools.ts";
import { Detokenizer } from "../detokenize.ts";
import type { Tokenizer } from "../tokenizer/tokenizer.ts";
import { parseCallBlock } from "./call-block.ts";
import type { OutputForm } from "./form.ts";

export type Piece =
  | { kind: "content" | "reasoning"; text: string }
  | { kind: "tool_start"; index: number; id: string; name: string }
  | { kind: "tool_arguments"; index: number; text: string };

export interface OutputOptions {
  /** `tools` and `think` are undefined where the request must not have them parsed. */
  form: OutputForm;
  /** As the request declared them. */
  tools?: Tool[];
  /** The prompt ended inside an open think block. */
  reasoning?: boolean;
}

type State = "content" | "reasoning" | "between" | "header" | "arguments" | "block";

/** A header longer than this is not one; a model gone wrong must not fill memory. */
const MAX_HEADER = 1024;
const MAX_BLOCK = 1024 * 1024;
const NOTHING = new Uint8Array();

/**
 * Kimi's form, after which nothing but more calls is expected:
 *
 *     text <section_begin> <call_begin>functions.NAME:IDX<argument_begin>{...}<call_end> ... <section_end>
 *          between         header                         arguments          between
 *
 * Qwen's and GLM's:
 *
 *     text <tool_call>...</tool_call> more text
 *          block
 */
export class OutputParser {
  private readonly tokenizer: Tokenizer;
  private readonly options: OutputOptions;
  private state: State;
  private decoder = new Detokenizer();
  /** Header or block so far. */
  private held = "";
  private argumentCharacters = 0;
  /** White space after a tag belongs to the form, not to the text. */
  private skipSpace = false;
  private readonly ids: string[] = [];

  constructor(tokenizer: Tokenizer, options: OutputOptions) {
    this.tokenizer = tokenizer;
    this.options = options;
    this.state = options.reasoning && options.form.think ? "reasoning" : "content";
    this.skipSpace = this.state === "reasoning";
  }

  /** Calls begun so far. */
  get toolCalls(): number {
    return this.ids.length;
  }

  get inReasoning(): boolean {
    return this.state === "reasoning";
  }

  push(token: number): Piece[] {
    const { tools, think } = this.options.form;
    if (think && token === think.open) return this.enter("reasoning", true);
    if (think && token === think.close) return this.enter("content", true);
    if (tools?.kind === "section") {
      if (token === tools.sectionBegin || token === tools.sectionEnd) return this.enter("between");
      if (token === tools.callBegin) return this.enter("header");
      if (token === tools.argumentBegin && this.state === "header") return this.beginCall();
      if (token === tools.callEnd)
        return this.state === "header" ? this.beginCall(true) : this.enter("between");
    }
    if (tools?.kind === "block") {
      if (token === tools.open) return this.enter("block");
      if (token === tools.close && this.state === "block") return this.enter("content", true);
    }
    return this.text(this.decoder.push(this.bytesOf(token)));
  }

  /** Everything left when the sequence has ended. */
  finish(): Piece[] {
    return this.enter("between");
  }

  /** Inside a block, GLM's argument tags count even where the vocabulary calls them special. */
  private bytesOf(token: number): Uint8Array {
    const { control, bytes } = this.tokenizer;
    const tag = this.state === "block" ? control.byId.get(token)?.content : undefined;
    if (tag !== undefined) return Buffer.from(tag);
    return control.hidden.has(token) ? NOTHING : bytes.of(token);
  }

  private text(text: string): Piece[] {
    if (text === "") return [];
    switch (this.state) {
      case "content":
      case "reasoning": {
        const shown = this.skipSpace ? text.trimStart() : text;
        if (shown === "") return [];
        this.skipSpace = false;
        return [{ kind: this.state, text: shown }];
      }
      case "arguments":
        this.argumentCharacters += text.length;
        return [{ kind: "tool_arguments", index: this.ids.length - 1, text }];
      case "header":
        if (this.held.length < MAX_HEADER) this.held += text;
        return [];
      case "block":
        if (this.held.length < MAX_BLOCK) this.held += text;
        return [];
      case "between":
        return [];
    }
  }

  /** Leaves the current state, flushing what it holds, for `state`. */
  private enter(state: State, skipSpace = false): Piece[] {
    const pieces = this.text(this.decoder.flush());
    if (this.state === "arguments" && this.argumentCharacters === 0) {
      pieces.push({ kind: "tool_arguments", index: this.ids.length - 1, text: "{}" });
    }
    if (this.state === "block") pieces.push(...this.closeBlock());
    this.decoder = new Detokenizer();
    this.state = state;
    this.held = "";
    this.argumentCharacters = 0;
    this.skipSpace = skipSpace;
    return pieces;
  }

  /** The header is complete: `functions.NAME:IDX`, which is also the id that the model wants to see again. */
  private beginCall(ended = false): Piece[] {
    this.held += this.decoder.flush();
    const header = this.held.trim();
    const name = /^(?:functions\.)?(.*?)(?::\d+)?$/s.exec(header)?.[1] ?? "";
    if (name === "") return this.enter("between");
    const id = /:\d+$/.test(header) ? header : `functions.${name}:${this.ids.length}`;
    const start = this.startCall(this.ids.includes(id) ? `${id}-${this.ids.length}` : id, name);
    this.enter("arguments");
    return ended ? [start, ...this.enter("between")] : [start];
  }

  /** A block that is no call, or was cut off, is shown as what the model wrote. */
  private closeBlock(): Piece[] {
    const call = parseCallBlock(this.held, this.options.tools ?? []);
    if (call === undefined) return [{ kind: "content", text: `<tool_call>${this.held}` }];
    const start = this.startCall(`call_${randomUUID().replaceAll("-", "").slice(0, 24)}`, call.name);
    return [start, { kind: "tool_arguments", index: this.ids.length - 1, text: call.arguments }];
  }

  private startCall(id: string, name: string): Piece {
    this.ids.push(id);
    return { kind: "tool_start", index: this.ids.length - 1, id, name };
  }
}
