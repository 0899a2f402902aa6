// The models that the nodes serve, asked anew when what is known is old.

import type { Context } from "hono";
import { ApiError } from "../gpu-node/contract/errors.ts";
import type { AppEnv } from "./context.ts";
import type { ModelEntry } from "./nodes.ts";

/** @throws ApiError no_node when no node has told its models yet */
export async function listModels(c: Context<AppEnv>): Promise<ModelEntry[]> {
  const { table } = c.get("gateway");
  await table.refresh(c.get("caller").account, c.req.raw.signal);
  const models = table.models();
  if (models.length === 0) throw new ApiError("no_node", "No node is ready.", { retryAfter: 2 });
  return models;
}
