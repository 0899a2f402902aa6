// The engine's thread: loads the model, then runs the loop until told to close. Nothing here waits for the main thread.
import { appendFileSync } from "node:fs";
import { type MessagePort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { type FaultSpec, FaultyRunner } from "./faults.ts";
import { Loop, type LoopOptions } from "./loop.ts";
import type { EndedRequest, InboxMessage, OutboxMessage } from "./messages.ts";
import { openRunner, type RunnerOptions } from "./open-runner.ts";
import type { Runner } from "./runner.ts";
import { COUNTERS, INTEGRITY_STATES, StatusBoard } from "./status-board.ts";

/** What can be said of the loop from another thread. */
export type SchedulerSettings = Omit<Partial<LoopOptions>, "tracker" | "onIncident" | "integrity"> & {
  /** Incidents of KV integrity are appended here as JSON lines. */
  incidentFile?: string;
  /** Happens on purpose, see faults.ts. */
  fault?: FaultSpec;
};

export interface WorkerData {
  runner: RunnerOptions;
  scheduler: SchedulerSettings;
  memory: SharedArrayBuffer;
  port: MessagePort;
}

/** An idle loop shows that it lives this often. */
const IDLE_MS = 100;
/** Turns of the loop between visits to the event loop, where native objects that nobody uses are released. */
const TURNS = 32;

/** The loop's settings for a runner where none are given. */
function loopOptions(runner: Runner, given: SchedulerSettings, options: RunnerOptions): LoopOptions {
  const { limits } = runner;
  const { incidentFile, fault: _, ...rest } = given;
  return {
    maxBatchTokens: limits.maxTokens,
    maxRunning: limits.slots,
    maxWaiting: 256,
    watermarkPages: Math.ceil((limits.pages - 1) / 100),
    ...rest,
    integrity: options.kind === "model" ? options.integrity : "off",
    onIncident(incident) {
      if (incidentFile) appendFileSync(incidentFile, `${JSON.stringify(incident)}\n`);
    },
  };
}

async function run({ runner: options, scheduler, memory, port }: WorkerData): Promise<void> {
  const board = new StatusBoard(memory);
  const post = (message: OutboxMessage, transfer: ArrayBuffer[] = []) => port.postMessage(message, transfer);
  let runner: Runner | undefined;
  let loop: Loop | undefined;
  try {
    const sound = openRunner(options, (share) => {
      board.set("progress", share);
      board.beat();
    });
    runner = scheduler.fault ? new FaultyRunner(sound, scheduler.fault) : sound;
    const inbox = { next: () => (receiveMessageOnPort(port)?.message as InboxMessage | undefined) ?? null };
    const outbox = {
      post(tokens: Int32Array, ended: EndedRequest[]) {
        const copy = tokens.slice();
        post({ kind: "output", tokens: copy, ended }, [copy.buffer]);
      },
    };
    loop = new Loop(runner, performance, inbox, outbox, loopOptions(runner, scheduler, options));
    publish(board, loop);
    board.set("progress", 1);
    board.state = "ready";
    post({ kind: "ready", maxModelLen: loop.maxLen, vocabSize: runner.limits.vocab });
    for (let turn = 1; !loop.closed; turn++) {
      const rings = board.rings;
      const busy = loop.tick();
      publish(board, loop);
      if (turn % TURNS === 0) await new Promise(setImmediate);
      if (!busy) board.sleep(rings, IDLE_MS);
    }
  } catch (error) {
    if (loop) publish(board, loop);
    // Whether the engine has failed for good, or starts anew, is the client's to say.
    post({ kind: "fatal", message: (error as Error).message });
  } finally {
    runner?.dispose();
    port.close();
  }
}

function publish(board: StatusBoard, loop: Loop): void {
  const { pool, running, waiting, slots } = loop.scheduler.sequences;
  board.set("running", running.length);
  board.set("waiting", waiting.length);
  board.set("pagesTotal", pool.total);
  board.set("pagesFree", pool.free);
  board.set("pagesCached", pool.cached);
  board.set("pagesOwned", pool.owned + pool.fenced);
  board.set("slotsFree", slots.free);
  board.set("pagesQuarantined", pool.quarantined);
  const { integrity } = loop;
  if (integrity) {
    board.set("integrity", INTEGRITY_STATES.indexOf(integrity.alarm === "" ? "ok" : "alarm"));
    // The loop's clock does not start in 1970.
    const age = performance.now() - integrity.provenAt;
    if (integrity.provenAt > 0) board.set("selfTestAt", Date.now() - age);
  }
  for (const name of COUNTERS) board.set(name, loop.counters[name]);
  board.beat();
}

if (workerData) await run(workerData as WorkerData);
