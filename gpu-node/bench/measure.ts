// Times the real loop over a model, in this thread: requests go in by an inbox, tokens come out by an outbox.
import { Loop } from "../engine/loop.ts";
import type { InboxMessage } from "../engine/messages.ts";
import type { ModelRunner } from "../engine/model-runner.ts";
import { unpackTokens } from "../engine/results.ts";
import { GREEDY } from "../engine/sampling.ts";

export interface DecodeTimes {
  batch: number;
  /** Context of each row in the middle of the measurement. */
  context: number;
  tokensPerSecond: number;
  /** Medians over the steps, in milliseconds. */
  stepMs: number;
  scheduleMs: number;
  /** Share of the time that the loop's thread did not wait for the device. */
  outsideShare: number;
}

const PROMPT = 32;
const WARM_STEPS = 4;

class Bench {
  readonly loop: Loop;
  tokens = 0;
  readonly #inbox: InboxMessage[] = [];
  readonly #vocab: number;
  #next = 1;

  constructor(runner: ModelRunner) {
    const { limits } = runner;
    this.#vocab = limits.vocab;
    const inbox = { next: () => this.#inbox.shift() ?? null };
    const post = (tokens: Int32Array) =>
      unpackTokens(tokens, () => {
        this.tokens++;
      });
    this.loop = new Loop(
      runner,
      performance,
      inbox,
      { post },
      {
        maxBatchTokens: limits.maxTokens,
        maxRunning: limits.slots,
        maxWaiting: limits.slots,
        watermarkPages: 0,
        prefixCache: false,
      },
    );
  }

  start(length: number, maxTokens: number): void {
    const handle = this.#next++;
    // Text of its own for every request, without meaning.
    const prompt = Int32Array.from({ length }, (_, i) => ((i + 1) * 7919 + handle * 104729) % this.#vocab);
    const request = {
      prompt,
      sampling: GREEDY,
      maxTokens,
      stopTokens: [],
      minTokens: 0,
      salt: "",
      label: "",
    };
    this.#inbox.push({ kind: "generate", handle, request });
  }

  /** Ends all requests and waits for their pages. */
  clear(): void {
    for (const { handle } of [...this.loop.scheduler.sequences.running]) {
      this.#inbox.push({ kind: "abort", handle });
    }
    while (this.loop.tick());
  }
}

/** Generates `steps` tokens in each of `batch` sequences at a time. */
export function measureDecode(runner: ModelRunner, batch: number, steps: number): DecodeTimes {
  const bench = new Bench(runner);
  const { loop } = bench;
  for (let i = 0; i < batch; i++) bench.start(PROMPT, steps + 1000);
  while (bench.tokens < batch * WARM_STEPS) loop.tick();
  const stepTimes: number[] = [];
  const scheduleTimes: number[] = [];
  const waited = loop.counters.wait_ms;
  const tokens = bench.tokens;
  const began = performance.now();
  for (let i = 0; i < steps; i++) {
    const schedule = loop.counters.schedule_ms;
    const started = performance.now();
    loop.tick();
    stepTimes.push(performance.now() - started);
    scheduleTimes.push(loop.counters.schedule_ms - schedule);
  }
  const elapsed = performance.now() - began;
  const times = {
    batch,
    context: PROMPT + WARM_STEPS + steps / 2,
    tokensPerSecond: ((bench.tokens - tokens) / elapsed) * 1000,
    stepMs: median(stepTimes),
    scheduleMs: median(scheduleTimes),
    outsideShare: 1 - (loop.counters.wait_ms - waited) / elapsed,
  };
  bench.clear();
  return times;
}

/** Milliseconds from a request's arrival to its first token, nothing else running: the median of `runs`. */
export function measureFirstToken(runner: ModelRunner, length: number, runs: number): number {
  const bench = new Bench(runner);
  const times: number[] = [];
  for (let i = 0; i <= runs; i++) {
    const tokens = bench.tokens;
    const started = performance.now();
    bench.start(length, 1);
    while (bench.tokens === tokens) bench.loop.tick();
    if (i > 0) times.push(performance.now() - started);
  }
  return median(times);
}

export function median(values: number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}
