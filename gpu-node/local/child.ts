// A child process with everything it starts, as one thing that is stopped as a whole.

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

export interface ChildOptions {
  /** For messages, e.g. `node a`. */
  name: string;
  command: string;
  args: string[];
  cwd: string;
  env: NodeJS.ProcessEnv;
  /** One line of stdout or stderr. */
  onLine: (line: string) => void;
}

export interface Child {
  readonly name: string;
  readonly running: boolean;
  /** Resolves when the process has ended, with its exit code or the name of the signal that ended it. */
  readonly exited: Promise<string>;
  /**
   * Asks it to end and to clean up, and ends it and whatever it started after `graceMs`. Resolves when all is gone.
   * Only the leader is asked: wrangler ends its workerd and esbuild itself and reaps them.
   */
  stop(graceMs: number): Promise<void>;
  /** Ends it and whatever it started at once. */
  kill(): void;
}

const POLL_MS = 20;
/** For a killed group to be gone; what is left then only waits to be reaped by its parent. */
const KILL_MS = 2_000;

/** Starts a process as the leader of a group of its own, so that the terminal's Ctrl-C reaches only us. */
export function startChild({ name, command, args, cwd, env, onLine }: ChildOptions): Child {
  const child = spawn(command, args, { cwd, env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
  let running = true;
  const exited = new Promise<string>((resolve) => {
    const end = (how: string) => {
      running = false;
      resolve(how);
    };
    child.once("exit", (code, signal) => end(signal ?? `exit code ${code}`));
    child.once("error", (error) => end(error.message));
  });
  for (const stream of [child.stdout, child.stderr]) createInterface({ input: stream }).on("line", onLine);

  /** False when no process of the group is left. */
  const signalGroup = (signal: NodeJS.Signals | 0): boolean => {
    if (child.pid === undefined) return false;
    try {
      return process.kill(-child.pid, signal);
    } catch {
      return false;
    }
  };
  const gone = async (ms: number) => {
    for (const end = Date.now() + ms; Date.now() < end; ) {
      if (!running && !signalGroup(0)) return true;
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
    return false;
  };
  return {
    name,
    exited,
    get running() {
      return running;
    },
    async stop(graceMs) {
      child.kill("SIGTERM");
      if (await gone(graceMs)) return;
      signalGroup("SIGKILL");
      await gone(KILL_MS);
    },
    kill: () => void signalGroup("SIGKILL"),
  };
}
