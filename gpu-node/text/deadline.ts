// Running code of somebody else's making, such as a chat template, on a thread that others wait for.

import { createContext, Script } from "node:vm";

/** It was stopped, wherever it was: nothing that it changed can be relied on. */
export class DeadlinePassed extends Error {}

export type RunWithin = <T>(ms: number, run: () => T) => T;

/**
 * Makes a function that gives the result of `run`, or throws DeadlinePassed after `ms`. V8 stops JavaScript under a vm
 * timeout also in functions that come from outside the vm's context; `catch` and `finally` of theirs do not run.
 */
export function createDeadline(): RunWithin {
  const script = new Script("run()");
  const context = createContext({ run: undefined });
  return (timeout, run) => {
    context.run = run;
    try {
      return script.runInContext(context, { timeout });
    } catch (error) {
      if ((error as NodeJS.ErrnoException)?.code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw error;
      throw new DeadlinePassed(`stopped after ${timeout} ms`);
    } finally {
      context.run = undefined;
    }
  };
}
