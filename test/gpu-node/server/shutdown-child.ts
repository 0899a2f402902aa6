// A node over a scripted engine as a process of its own, for shutdown.test.ts. Prints its URL, exits as `serve` does.

import { listen } from "../../../gpu-node/server/listen.ts";
import { untilShutdown } from "../../../gpu-node/server/shutdown.ts";
import { harness, ids, says } from "./harness.ts";

const [mode, drainMs] = process.argv.slice(2);
const h = await harness(
  mode === "hangs"
    ? { groups: [ids("a"), ids("b")], hangAt: 1 }
    : { ...says("one two three four five"), delay: 30 },
);
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
