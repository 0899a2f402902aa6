// A node over a scripted engine as a process of its own, for shutdown.test.ts. Prints its URL, exits as `serve` does.
// Answers stop after their first token until SIGUSR1; SIGUSR2 makes the engine fail.

import { listen } from "../../../gpu-node/server/listen.ts";
import { untilShutdown } from "../../../gpu-node/server/shutdown.ts";
import { END, harness, ids } from "./harness.ts";

const [drainMs] = process.argv.slice(2);
const release = new Promise<void>((resolve) => process.on("SIGUSR1", () => resolve()));
const h = await harness({ groups: [ids("a"), ids("b"), [END]], hangAt: 1, release });
const listener = await listen((request) => h.app.fetch(request), {
  host: "127.0.0.1",
  port: 0,
  maxConnections: 10,
});
console.log(listener.url);
process.on("SIGUSR2", () => {
  h.engine.state = "failed";
});
process.exitCode = await untilShutdown({
  engine: h.engine,
  generations: h.node.generations,
  prompts: h.node.prompts,
  listener,
  drainMs: Number(drainMs),
  stallMs: 60_000,
  log: () => {},
});
