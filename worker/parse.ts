// A body as a request to a node: its bytes are bounded and checked here, its meaning by the dialect (api/).

import { ApiError } from "../gpu-node/contract/errors.ts";
import { parseJsonObject, readBody } from "../gpu-node/contract/json.ts";
import { LIMITS } from "../gpu-node/contract/limits.ts";
import type { Renderer } from "./answer.ts";
import type { Job } from "./forward.ts";
import { EDGE } from "./limits.ts";

/** A request in the node's terms. */
export interface NodeRequest {
  target: Job["target"];
  model: string;
  stream: boolean;
  /** Body for the node. */
  body: Record<string, unknown>;
  renderer: Renderer;
  /** The client's name of a field of `body`, where they differ. */
  fieldOf?: (param: string) => string;
}

/**
 * The body as a JSON object. Any content type is taken: `curl -d` without a header is how people try an API.
 * @throws ApiError body_too_large or invalid_json
 */
export async function readJson(request: Request): Promise<Record<string, unknown>> {
  return parseJsonObject(await readBody(request, LIMITS.bodyBytes, EDGE.drainBytes));
}

/** Runs `parse`; the field that an error names is renamed to what the client wrote. */
export function withField<T>(fieldOf: (param: string) => string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    return rethrow(error, fieldOf);
  }
}

/** Throws `error` with its field renamed. */
export function rethrow(error: unknown, fieldOf: NodeRequest["fieldOf"]): never {
  if (!fieldOf || !(error instanceof ApiError) || error.param === null) throw error;
  const { param, retryAfter, retryable } = error;
  throw new ApiError(error.code, error.message, { param: fieldOf(param), retryAfter, retryable });
}
