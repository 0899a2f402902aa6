// One seed = one run: a pool, limits and a crowd of requests drawn at random, with aborts and forced preemptions.
import assert from "node:assert/strict";
import type { GenerateRequest } from "../../gpu-node/contract/engine.ts";
import { Random } from "../ops/random.ts";
import { ending, Harness, type HarnessOptions, type Heard, promptOf, usage } from "../scripted/harness.ts";

class SimRandom extends Random {
  /** An integer in [low, high]. */
  int(low: number, high: number): number {
    return low + Math.floor(this.next() * (high - low + 1));
  }

  chance(share: number): boolean {
    return this.next() < share;
  }
}

export interface SimReport {
  requests: number;
  ticks: number;
  preemptions: number;
  aborts: number;
  cachedTokens: number;
  staleRows: number;
  evictions: number;
}

const VOCAB = 60;

function harnessOf(random: SimRandom, more: HarnessOptions): Harness {
  const slots = random.int(1, 6);
  const pages = random.int(3, 24);
  const options = {
    slots,
    pages,
    vocab: VOCAB,
    maxLen: 64 * random.int(2, 10),
    maxBatchTokens: random.int(slots, 200),
    watermarkPages: random.int(0, Math.min(3, pages - 1)),
    maxWaiting: random.int(3, 40),
    prefixCache: random.chance(0.9),
    preemptEvery: random.chance(0.5) ? random.int(2, 9) : 0,
    ...more,
  };
  return new Harness(options, random.int(1, 2));
}

// Prompts share beginnings, so that the prefix cache matters; lengths cluster around the ends of pages.
function randomRequest(random: SimRandom, h: Harness): Heard {
  const shared = promptOf(64 * random.int(0, 4), random.int(1, 3), VOCAB);
  const own = promptOf(
    random.chance(0.3) ? random.int(0, 2) : random.int(0, 130),
    random.int(1, 1000),
    VOCAB,
  );
  const more: Partial<GenerateRequest> = {
    salt: random.chance(0.8) ? "a" : "b",
    stopTokens: random.chance(0.6) ? [random.int(0, VOCAB - 1), random.int(0, VOCAB - 1)] : [],
    minTokens: random.chance(0.3) ? random.int(0, 20) : 0,
  };
  return h.start([...shared, ...own], random.chance(0.1) ? 1 : random.int(1, 150), more);
}

/** Runs one seed to its end and checks everything that must hold. `eachTick` comes before every turn of the loop. */
export function simulate(
  seed: number,
  more: HarnessOptions = {},
  eachTick: (h: Harness) => void = () => {},
): SimReport {
  const random = new SimRandom(seed);
  const h = harnessOf(random, more);
  const requests: Heard[] = [];
  const count = random.int(5, 40);
  const rate = random.next();
  const abortRate = random.chance(0.7) ? random.next() * 0.2 : 0;
  for (let tick = 0; requests.length < count; tick++) {
    while (requests.length < count && random.chance(0.02 + 0.8 * rate))
      requests.push(randomRequest(random, h));
    const open = requests.filter((heard) => heard.end === null);
    if (open.length > 0 && random.chance(abortRate)) h.abort(open[random.int(0, open.length - 1)]);
    eachTick(h);
    h.tick();
    assert.ok(tick < 100_000, "requests stop arriving");
  }
  h.finish();
  for (const heard of requests) check(h, heard);
  h.assertEmpty();
  const { counters } = h.loop;
  return {
    requests: count,
    ticks: h.ticks,
    preemptions: counters.preemptions,
    aborts: counters.finished_abort,
    cachedTokens: counters.cached_tokens,
    staleRows: counters.stale_rows,
    evictions: counters.evictions,
  };
}

function check(h: Harness, heard: Heard): void {
  const how = ending(heard);
  assert.notEqual(how, "open", `request ${heard.handle} has no end`);
  h.assertOracle(heard);
  if (how === "prompt_too_long") assert.ok(heard.request.prompt.length >= h.sequences.maxLen);
  else if (how === "invalid_request") assert.equal(heard.request.prompt.length, 0);
  else if (how !== "queue_full" && how !== "kv_integrity") {
    const told = usage(heard);
    assert.equal(told.completionTokens, heard.tokens.length, "usage counts the tokens that were published");
    assert.equal(told.promptTokens, heard.request.prompt.length);
    assert.ok(told.cachedTokens < told.promptTokens || told.promptTokens === 0);
  }
}
