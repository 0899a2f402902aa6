// `edgewise bench gpu --engine`: how long the engine blocks the main thread at 64 streams, and how long the GPU idles
// between decode steps. Bounds of the project: 5 ms; 5 % on a model whose step takes at least 5 ms.
import { monitorEventLoopDelay } from "node:perf_hooks";
import { startEngine } from "../../engine/client.ts";
import { type ModelRunnerOptions, openModelRunner } from "../../engine/open-runner.ts";
import { GREEDY } from "../../engine/sampling.ts";
import type { OpDevice } from "../../native/device.ts";
import { measureDecode, median } from "../measure.ts";

export interface EngineReport {
  streams: number;
  /** Delay of the main thread's event loop while all streams run, over what an idle one has; longest and 99 %. */
  loopDelayMs: { p99: number; max: number; idleMax: number };
  /** Medians over decode steps of all streams. */
  stepMs: number;
  gapMs: number;
  /** Share of the time between steps in which the GPU did nothing. */
  idleShare: number;
}

export interface EngineBench {
  runner: ModelRunnerOptions;
  streams: number;
  steps: number;
}

const PROMPT = 32;
/** The histogram's own timer; what it records includes it. */
const RESOLUTION_MS = 1;
const IDLE_MS = 500;
const NS = 1e6;

export async function benchEngine(bench: EngineBench): Promise<EngineReport> {
  const idle = await idleShare(bench);
  return { streams: bench.streams, ...(await loopDelay(bench)), ...idle };
}

export function describeEngine({
  streams,
  loopDelayMs,
  stepMs,
  gapMs,
  idleShare: idle,
}: EngineReport): string {
  const { p99, max, idleMax } = loopDelayMs;
  return [
    `event loop of the main thread at ${streams} streams: 99 % within ${p99.toFixed(2)} ms, longest ${max.toFixed(2)} ms (idle: ${idleMax.toFixed(2)} ms; bound 5 ms)`,
    `decode step of ${streams} rows at depth 2: ${stepMs.toFixed(3)} ms on the GPU, then ${(1000 * gapMs).toFixed(0)} us idle: ${(100 * idle).toFixed(1)} % (bound 5 % from 5 ms per step up)`,
  ].join("\n");
}

/** All streams decode through the engine's thread; the main thread reads them and does nothing else. */
async function loopDelay({ runner, streams, steps }: EngineBench) {
  const engine = startEngine({ runner, scheduler: { prefixCache: false }, restarts: 0 });
  try {
    await engine.ready();
    const idle = watch();
    await new Promise((resolve) => setTimeout(resolve, IDLE_MS));
    const idleMax = stop(idle).max;
    const running = watch();
    await Promise.all(
      Array.from({ length: streams }, async (_, stream) => {
        const prompt = Int32Array.from({ length: PROMPT }, (__, i) => (i * 7919 + stream) % engine.vocabSize);
        const rules = { sampling: GREEDY, maxTokens: steps, stopTokens: [], minTokens: 0 };
        const request = { prompt, ...rules, salt: "", label: "" };
        for await (const event of engine.generate(request, new AbortController().signal)) {
          if (event.type === "error") throw new Error(event.message);
        }
      }),
    );
    return { loopDelayMs: { ...stop(running), idleMax } };
  } finally {
    await engine.close();
  }
}

type Histogram = ReturnType<typeof monitorEventLoopDelay>;

function watch(): Histogram {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  histogram.enable();
  return histogram;
}

function stop(histogram: Histogram): { p99: number; max: number } {
  histogram.disable();
  const over = (ns: number) => Math.max(0, ns / NS - RESOLUTION_MS);
  return { p99: over(histogram.percentile(99)), max: over(histogram.max) };
}

/** The loop in this thread; marks of the device's clock around the work of every step. */
async function idleShare({ runner: options, streams, steps }: EngineBench) {
  const runner = openModelRunner(options);
  try {
    const times = new StepTimes(runner.device);
    runner.onStep = (point) => times.mark(point);
    measureDecode(runner, streams, steps);
    return times.summary(steps);
  } finally {
    runner.dispose();
  }
}

class StepTimes {
  readonly #device: OpDevice;
  #begin = -1;
  #end = -1;
  readonly #steps: number[] = [];
  readonly #gaps: number[] = [];
  readonly #pending: { before: number; begin: number; end: number }[] = [];

  constructor(device: OpDevice) {
    this.#device = device;
  }

  mark(point: "begin" | "end"): void {
    const mark = this.#device.timestamp();
    if (point === "begin") this.#begin = mark;
    else {
      if (this.#end >= 0) this.#pending.push({ before: this.#end, begin: this.#begin, end: mark });
      this.#end = mark;
      // A step is asked for its times when it is long done: elapsed() waits.
      while (this.#pending.length > 4) this.#take();
    }
  }

  /** Of the last `steps`: what comes before is prefill and warm-up, or a capture. */
  summary(steps: number): Pick<EngineReport, "stepMs" | "gapMs" | "idleShare"> {
    while (this.#pending.length > 0) this.#take();
    const [work, gaps] = [this.#steps.slice(-steps), this.#gaps.slice(-steps)];
    const [stepMs, gapMs] = [median(work), median(gaps)];
    const total = (list: number[]) => list.reduce((a, b) => a + b, 0);
    return { stepMs, gapMs, idleShare: total(gaps) / (total(gaps) + total(work)) };
  }

  #take(): void {
    const step = this.#pending.shift();
    if (!step) return;
    this.#gaps.push(this.#device.elapsed(step.before, step.begin));
    this.#steps.push(this.#device.elapsed(step.begin, step.end));
  }
}
