// Drives the real loop over the oracle runner, one tick at a time, and keeps what every request heard.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { GenerateRequest } from "../../gpu-node/contract/engine.ts";
import { Loop, type LoopOptions } from "../../gpu-node/engine/loop.ts";
import type { EndedRequest, InboxMessage } from "../../gpu-node/engine/messages.ts";
import type { PlanLimits } from "../../gpu-node/engine/plan.ts";
import { unpackTokens } from "../../gpu-node/engine/results.ts";
import type { Runner } from "../../gpu-node/engine/runner.ts";
import { GREEDY } from "../../gpu-node/engine/sampling.ts";
import { type SimOptions, SimRunner, simToken } from "../../gpu-node/engine/sim-runner.ts";

export interface HarnessOptions extends Partial<LoopOptions> {
  /** Pages that can be allocated: the null page comes on top. */
  pages?: number;
  slots?: number;
  maxLen?: number;
  vocab?: number;
  sim?: SimOptions;
  /** Makes what runs the steps; default: the oracle alone. */
  runner?: (limits: PlanLimits, options: SimOptions) => Runner;
  /** Called while a step is being waited for. */
  duringStep?: (h: Harness) => void;
}

export interface Heard {
  handle: number;
  request: GenerateRequest;
  tokens: number[];
  end: EndedRequest | null;
  /** Ticks of the loop when the first token and the end came. */
  firstTick: number;
  endTick: number;
}

/** `count` token ids that differ between seeds. */
export function promptOf(count: number, seed = 1, vocab = 1000): number[] {
  return Array.from({ length: count }, (_, i) => (i * 7919 + seed * 104729 + ((i * seed) % 13)) % vocab);
}

export class Harness {
  readonly loop: Loop;
  readonly vocab: number;
  readonly heard = new Map<number, Heard>();
  ticks = 0;
  readonly #inbox: InboxMessage[] = [];
  #next = 1;
  #time = 0;

  constructor(options: HarnessOptions = {}, depth = 1) {
    this.vocab = options.vocab ?? 1000;
    const maxLen = options.maxLen ?? 1024;
    const slots = options.slots ?? 8;
    const limits: PlanLimits = {
      slots,
      maxPages: Math.ceil(maxLen / 64),
      maxLen,
      pages: (options.pages ?? 64) + 1,
      vocab: this.vocab,
      maxTokens: options.maxBatchTokens ?? 128,
      maxRows: slots,
    };
    const loopOptions: LoopOptions = {
      maxBatchTokens: 128,
      maxRunning: slots,
      maxWaiting: 1000,
      watermarkPages: 1,
      invariants: true,
      prefixSecret: "test",
      ...options,
    };
    const make = options.runner ?? ((limits, sim) => new SimRunner(limits, sim));
    const runner = make(limits, { depth, ...options.sim });
    const wait = runner.wait.bind(runner);
    runner.wait = (ticket) => {
      options.duringStep?.(this);
      return wait(ticket);
    };
    const inbox = { next: () => this.#inbox.shift() ?? null };
    const outbox = {
      post: (tokens: Int32Array, ended: EndedRequest[]) => this.#hear(tokens, ended),
    };
    this.loop = new Loop(runner, { now: () => this.#time++ }, inbox, outbox, loopOptions);
  }

  get pool() {
    return this.loop.scheduler.sequences.pool;
  }

  get sequences() {
    return this.loop.scheduler.sequences;
  }

  start(prompt: number[], maxTokens: number, more: Partial<GenerateRequest> = {}): Heard {
    const request: GenerateRequest = {
      prompt: Int32Array.from(prompt),
      sampling: GREEDY,
      maxTokens,
      stopTokens: [],
      minTokens: 0,
      salt: "account",
      label: "",
      ...more,
    };
    const handle = this.#next++;
    const heard: Heard = { handle, request, tokens: [], end: null, firstTick: -1, endTick: -1 };
    this.heard.set(handle, heard);
    this.#inbox.push({ kind: "generate", handle, request });
    return heard;
  }

  abort(heard: Heard): void {
    this.#inbox.push({ kind: "abort", handle: heard.handle });
  }

  send(message: InboxMessage): void {
    this.#inbox.push(message);
  }

  tick(): boolean {
    this.ticks++;
    return this.loop.tick();
  }

  /** Ticks until the loop has nothing to do. */
  finish(most = 20_000): void {
    for (let i = 0; i < most; i++) if (!this.tick()) return;
    assert.fail(`still busy after ${most} ticks: ${this.sequences.running.length} run`);
  }

  /** The oracle's continuation of the request, up to its end. */
  expected(heard: Heard): number[] {
    const { prompt, stopTokens, minTokens, maxTokens } = heard.request;
    const most = Math.min(maxTokens, this.sequences.maxLen - prompt.length);
    const tokens = [...prompt];
    for (let i = 1; i <= most; i++) {
      const token = simToken(tokens, tokens.length, this.vocab);
      tokens.push(token);
      if (i > minTokens && stopTokens.includes(token)) break;
    }
    return tokens.slice(prompt.length);
  }

  /** Every token of a request that was not cut short is the oracle's, and of one that was, a beginning of it. */
  assertOracle(heard: Heard): void {
    const expected = this.expected(heard);
    const whole = heard.end !== null && "reason" in heard.end && heard.end.reason !== "abort";
    assert.deepEqual(heard.tokens, whole ? expected : expected.slice(0, heard.tokens.length));
  }

  /** Nothing runs, waits or is held: all pages are free or cached, all slots free. */
  assertEmpty(): void {
    const { pool, slots, running, waiting } = this.sequences;
    assert.equal(running.length + waiting.length, 0);
    assert.equal(this.loop.live, 0);
    assert.equal(pool.owned, 0);
    assert.equal(pool.fenced, 0);
    assert.equal(pool.free + pool.cached + pool.quarantined, pool.total);
    assert.ok(pool.refs.every((count) => count === 0));
    assert.equal(slots.free, slots.count);
  }

  #hear(tokens: Int32Array, ended: EndedRequest[]): void {
    unpackTokens(tokens, (handle, token) => {
      const heard = this.heard.get(handle)!;
      assert.equal(heard.end, null, `request ${handle} heard a token after its end`);
      if (heard.tokens.length === 0) heard.firstTick = this.ticks;
      heard.tokens.push(token);
    });
    for (const end of ended) {
      const heard = this.heard.get(end.handle)!;
      assert.equal(heard.end, null, `request ${end.handle} ended twice`);
      heard.end = end;
      heard.endTick = this.ticks;
    }
  }
}

/** The reason a request finished for, or its error code, or "open". */
export function ending(heard: Heard): string {
  if (heard.end === null) return "open";
  return "reason" in heard.end ? heard.end.reason : heard.end.code;
}

export function usage(heard: Heard) {
  assert.ok(heard.end && "reason" in heard.end, `request ${heard.handle} did not finish`);
  return heard.end.usage;
}

/** A test at depth 1 and depth 2. Each `yield` of the script is one tick; afterwards all tokens are checked. */
export function scripted(
  name: string,
  options: HarnessOptions,
  script: (h: Harness, depth: number) => Generator<void, void, void>,
): void {
  for (const depth of [1, 2]) {
    test(`${name} (depth ${depth})`, () => {
      const h = new Harness(options, depth);
      for (const _ of script(h, depth)) h.tick();
      for (const heard of h.heard.values()) h.assertOracle(heard);
    });
  }
}
