// What one isolate keeps between requests.

import { Admission } from "./admit.ts";
import { createKeyRing, type KeyRing } from "./auth.ts";
import { type Env, readConfig } from "./config.ts";
import { NodeTable } from "./nodes.ts";
import { Pins } from "./route.ts";

export interface Gateway {
  keys: KeyRing;
  table: NodeTable;
  pins: Pins;
  admission: Admission;
}

/** @throws Error naming the variable that is wrong */
export async function createGateway(env: Env): Promise<Gateway> {
  const config = readConfig(env);
  return {
    keys: await createKeyRing(config.apiKeys, config.pepper),
    table: await NodeTable.create(config.nodes),
    pins: new Pins(),
    admission: new Admission(),
  };
}

/** Gives every request the same gateway. Requests that race to be first may build it twice; one is kept. */
export function gatewaySource(): (env: Env) => Promise<Gateway> {
  let kept: Gateway | undefined;
  return async (env) => {
    // A promise must not be shared: workerd ends it with the request that made it.
    const built = kept ?? (await createGateway(env));
    kept ??= built;
    return kept;
  };
}
