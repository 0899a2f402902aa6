// How a node ends: drained after a signal, or with an error after its engine failed.

import type { Engine } from "../contract/engine.ts";
import { ApiError } from "../contract/errors.ts";
import type { Prompts } from "../text/prompts.ts";
import type { Generations } from "./generation.ts";
import type { Listener } from "./listen.ts";

export interface Lifetime {
  engine: Engine;
  generations: Generations;
  prompts: Prompts;
  listener: Listener;
  drainMs: number;
  stallMs: number;
  log: (message: string) => void;
}

const WATCH_MS = 500;
/** After an engine failure: for error answers to reach their clients. */
const FLUSH_MS = 2000;
const CLOSE_MS = 6000;
const FAILED_CLOSE_MS = 200;

/**
 * Resolves with the exit code: 0 after a drain, 1 after an engine failure. A second signal exits at once.
 * An engine that stands still has every request ended with a retryable error; readiness has been off by then.
 */
export async function untilShutdown(life: Lifetime): Promise<number> {
  const { engine, generations, prompts, listener, drainMs, stallMs, log } = life;
  const cause = await new Promise<"signal" | "failed">((resolve) => {
    const watch = setInterval(() => {
      const { state, heartbeatAge } = engine.status();
      const stuck = state === "ready" && heartbeatAge > stallMs;
      if (stuck && generations.size > 0) {
        log(`no engine step for ${Math.round(heartbeatAge / 1000)} s: ending ${generations.size} requests`);
      }
      if (stuck || state === "failed")
        generations.failAll(new ApiError("engine_failed", "The engine failed."));
      if (state === "failed") end("failed");
    }, WATCH_MS);
    const end = (why: "signal" | "failed") => {
      clearInterval(watch);
      resolve(why);
    };
    let signals = 0;
    const onSignal = (signal: string) => {
      if (++signals > 1) process.exit(1);
      log(`${signal}: draining for up to ${drainMs / 1000} s; once more exits at once`);
      end("signal");
    };
    process.on("SIGTERM", onSignal);
    process.on("SIGINT", onSignal);
  });
  if (cause === "signal") await engine.drain(drainMs);
  else log("the engine failed: exiting");
  await quiet(generations, FLUSH_MS);
  generations.failAll(new ApiError("draining", "The node is shutting down."));
  await within(listener.close(false), FLUSH_MS);
  await listener.close(true);
  await prompts.close();
  // Of a failed engine nothing may be left that could confirm.
  await within(engine.close(), cause === "failed" ? FAILED_CLOSE_MS : CLOSE_MS);
  return cause === "signal" ? 0 : 1;
}

async function quiet(generations: Generations, ms: number): Promise<void> {
  for (const end = Date.now() + ms; generations.size > 0 && Date.now() < end; ) await sleep(10);
}

/** Waits for `work`, but not longer than `ms`; leaves no timer behind that would keep the process alive. */
async function within(work: Promise<void>, ms: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const limit = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  await Promise.race([work, limit]);
  clearTimeout(timer);
}

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));
