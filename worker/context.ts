// What Hono hands from stage to stage.

import type { Caller } from "./auth.ts";
import type { Env } from "./config.ts";
import type { Gateway } from "./gateway.ts";

export interface AppEnv {
  Bindings: Env;
  Variables: {
    requestId: string;
    gateway: Gateway;
    caller: Caller;
  };
}
