// What the routes of a node work with.

import type { Engine } from "../contract/engine.ts";
import { ApiError } from "../contract/errors.ts";
import type { Verifier } from "../contract/signing.ts";
import type { ControlPolicy, ModelText } from "../text/model-text.ts";
import type { Prompts } from "../text/prompts.ts";
import type { Generations } from "./generation.ts";
import type { Metrics } from "./metrics.ts";

export interface GpuNode {
  engine: Engine;
  generations: Generations;
  text: ModelText;
  prompts: Prompts;
  /** The first is the one reported; the others are accepted too. */
  modelNames: string[];
  verifier: Verifier;
  policy: ControlPolicy;
  metrics: Metrics;
  /** Milliseconds without a heartbeat after which the engine counts as stuck. */
  stallMs: number;
  /** Between comment lines on a quiet stream. */
  heartbeatMs: number;
  /** Unix milliseconds. */
  clock: () => number;
  /** Internal faults, never shown to clients. */
  log: (message: string, error?: unknown) => void;
}

const RETRY_LOADING_S = 2;
const RETRY_FAILED_S = 5;

/** Why no request can be taken now; undefined when one can. */
export function unavailable(node: GpuNode): ApiError | undefined {
  const { state, progress, heartbeatAge, integrity } = node.engine.status();
  if (state === "loading") {
    return new ApiError("loading", `The model is loading (${Math.round(progress * 100)} %).`, {
      retryAfter: RETRY_LOADING_S,
    });
  }
  if (state === "draining")
    return new ApiError("draining", "The node is shutting down.", { retryAfter: RETRY_LOADING_S });
  if (state === "failed")
    return new ApiError("engine_failed", "The engine failed.", { retryAfter: RETRY_FAILED_S });
  if (integrity === "alarm")
    return new ApiError("engine_failed", "The KV cache can't be trusted.", { retryAfter: RETRY_FAILED_S });
  if (heartbeatAge > node.stallMs) {
    return new ApiError("engine_failed", "The engine does not move.", { retryAfter: RETRY_FAILED_S });
  }
  return undefined;
}

/** @throws ApiError model_not_found */
export function checkModel(node: GpuNode, model: string): void {
  if (node.modelNames.includes(model)) return;
  throw new ApiError(
    "model_not_found",
    `This node does not serve that model; it serves ${node.modelNames[0]}.`,
    {
      param: "model",
    },
  );
}
