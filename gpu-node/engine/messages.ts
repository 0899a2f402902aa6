// Messages between the main thread and the engine's thread.
import type { EngineErrorCode, FinishReason, GenerateRequest, Usage } from "../contract/engine.ts";

/** To the engine. Handles are ours and ascend. */
export type InboxMessage =
  | { kind: "generate"; handle: number; request: GenerateRequest }
  | { kind: "abort"; handle: number }
  /** Refuse what comes from now on. */
  | { kind: "drain" }
  /** End everything that still runs by a retryable error. */
  | { kind: "cut" }
  | { kind: "close" };

export type EndedRequest =
  | { handle: number; reason: FinishReason; usage: Usage }
  | { handle: number; code: EngineErrorCode; message: string };

/** From the engine: one message per step at most. */
export type OutboxMessage =
  | { kind: "ready"; maxModelLen: number; vocabSize: number }
  | { kind: "output"; tokens: Int32Array; ended: EndedRequest[] }
  | { kind: "fatal"; message: string };

const RETRYABLE: Record<EngineErrorCode, boolean> = {
  prompt_too_long: false,
  queue_full: true,
  engine_failed: true,
  draining: true,
  kv_integrity: true,
  invalid_request: false,
};

/** Whether the same request may succeed later or on another node. */
export function isRetryable(code: EngineErrorCode): boolean {
  return RETRYABLE[code];
}
