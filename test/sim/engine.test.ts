// Seeded simulations of the engine over the oracle: EDGEWISE_SEED=n repeats one, EDGEWISE_SIM_RUNS=n sets how many.
import assert from "node:assert/strict";
import { test } from "node:test";
import { type SimReport, simulate } from "./engine.ts";

const fixed = process.env.EDGEWISE_SEED;
const first = fixed ? Number(fixed) : Math.floor(Math.random() * 2 ** 31);
const runs = fixed ? 1 : Number(process.env.EDGEWISE_SIM_RUNS ?? 150);

test(`whatever arrives, ends or is preempted when, every request gets the oracle's tokens (${runs} runs)`, () => {
  const total: Partial<Record<keyof SimReport, number>> = {};
  for (let seed = first; seed < first + runs; seed++) {
    let report: SimReport;
    try {
      report = simulate(seed);
    } catch (error) {
      throw new Error(`EDGEWISE_SEED=${seed}: ${(error as Error).message}`, { cause: error });
    }
    for (const key of Object.keys(report) as (keyof SimReport)[])
      total[key] = (total[key] ?? 0) + report[key];
  }
  console.log(`seeds from ${first}: ${JSON.stringify(total)}`);
  if (runs < 100) return;
  for (const [what, count] of Object.entries(total)) assert.ok(count > 0, `the runs had no ${what}`);
});
