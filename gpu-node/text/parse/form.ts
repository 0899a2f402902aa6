// The structure that a model's vocabulary offers: which of its tokens open and close what.

import type { Tokenizer } from "../tokenizer/tokenizer.ts";

/** Kimi's tool calls: a section of calls, each with a header and arguments. */
export interface SectionMarkers {
  kind: "section";
  sectionBegin: number;
  sectionEnd: number;
  callBegin: number;
  argumentBegin: number;
  callEnd: number;
}

/** Qwen's and GLM's: one block per call, see call-block.ts. */
export interface BlockMarkers {
  kind: "block";
  open: number;
  close: number;
}

export interface OutputForm {
  tools: SectionMarkers | BlockMarkers | undefined;
  think: { open: number; close: number } | undefined;
}

export function outputFormOf(tokenizer: Tokenizer): OutputForm {
  const id = (content: string) => tokenizer.control.byContent.get(content)?.id;
  const pair = (open: number | undefined, close: number | undefined) =>
    open !== undefined && close !== undefined ? { open, close } : undefined;
  const block = pair(id("<tool_call>"), id("</tool_call>"));
  return {
    tools: sectionMarkers(id) ?? (block && { kind: "block", ...block }),
    think: pair(id("<think>"), id("</think>")),
  };
}

function sectionMarkers(id: (content: string) => number | undefined): SectionMarkers | undefined {
  const sectionBegin = id("<|tool_calls_section_begin|>");
  const sectionEnd = id("<|tool_calls_section_end|>");
  const callBegin = id("<|tool_call_begin|>");
  const argumentBegin = id("<|tool_call_argument_begin|>");
  const callEnd = id("<|tool_call_end|>");
  if (sectionBegin === undefined || sectionEnd === undefined || callBegin === undefined) return undefined;
  if (argumentBegin === undefined || callEnd === undefined) return undefined;
  return { kind: "section", sectionBegin, sectionEnd, callBegin, argumentBegin, callEnd };
}
