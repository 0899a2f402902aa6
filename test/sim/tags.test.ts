// Seeded simulations with page tags: without a fault there is no incident, and with one every few hundred turns each is
// accounted for. EDGEWISE_SEED=n repeats one, EDGEWISE_SIM_RUNS=n sets how many.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { PLAN_LAYOUT as L } from "../../gpu-node/engine/plan.ts";
import type { Incident } from "../../gpu-node/kv/incidents.ts";
import { TAG_LAYOUT as T } from "../../gpu-node/kv/tag-layout.ts";
import { Random } from "../ops/random.ts";
import { CheckedSimRunner, closeDevice } from "../scripted/checked-runner.ts";
import type { Harness, HarnessOptions } from "../scripted/harness.ts";
import { simulate } from "./engine.ts";

after(closeDevice);

const fixed = process.env.EDGEWISE_SEED;
const first = fixed ? Number(fixed) : Math.floor(Math.random() * 2 ** 31);
const runs = fixed ? 1 : Number(process.env.EDGEWISE_SIM_RUNS ?? 25);
const RATE = 0.01;

interface Told {
  injected: number;
  noticed: number;
  /** The sequence had left, or got its pages anew, before a step read them. */
  overtaken: number;
  incidents: number;
  /** Rows that failed of sequences that had left meanwhile: nobody heard of them. */
  stale: number;
  requests: number;
  pagesRead: number;
}

/** One run; `inject` breaks something of the row that it is given, or says that it can't. */
function run(seed: number, rate: number): Told {
  const random = new Random(seed + 1);
  const told: Told = {
    injected: 0,
    noticed: 0,
    overtaken: 0,
    incidents: 0,
    stale: 0,
    requests: 0,
    pagesRead: 0,
  };
  /** [slot] the stay whose page table was made wrong. */
  const wrong = new Map<number, number>();
  const heard = new Set<string>();
  const failed: { step: number; slot: number }[] = [];
  let runner!: CheckedSimRunner;
  let last!: Harness;
  const options: HarnessOptions = {
    integrity: "tags",
    selfTestMs: 0,
    onIncident({ step, slot }: Incident) {
      told.incidents++;
      heard.add(`${step} ${slot}`);
    },
    runner(limits, sim) {
      runner = new CheckedSimRunner(limits, sim);
      runner.tamper = {
        afterCheck(verdicts, plan, step) {
          for (let row = 0; row < plan[L.h_rows]; row++) {
            const at = plan[L.h_rows_offset] + row * L.row_stride;
            const slot = plan[at + L.row_slot];
            const status = verdicts[row * T.verdict_words + T.v_status];
            if (status !== T.status_ok) failed.push({ step, slot });
            if (!wrong.has(slot)) continue;
            if (wrong.get(slot) !== plan[at + L.row_epoch]) told.overtaken++;
            else {
              assert.equal(status, T.status_failed, `step ${step}, slot ${slot}: a wrong page is noticed`);
              told.noticed++;
            }
            wrong.delete(slot);
          }
        },
      };
      return runner;
    },
  };
  const report = simulate(seed, options, (h) => {
    last = h;
    for (const { slot, epoch, computed, pages } of h.sequences.running) {
      if (computed === 0 || wrong.has(slot) || random.next() >= rate) continue;
      runner.misdirect(slot, 0, pages[0] === 1 ? 2 : 1);
      wrong.set(slot, epoch);
      told.injected++;
    }
  });
  told.overtaken += wrong.size;
  told.requests = report.requests;
  told.stale = failed.filter(({ step, slot }) => !heard.has(`${step} ${slot}`)).length;
  const { counters } = last.loop;
  for (const phase of ["prefill", "prefix", "decode", "restore"] as const) {
    told.pagesRead += counters[`kv_tag_pages_read_${phase}`];
    if (rate === 0)
      assert.equal(counters[`kv_tag_pages_checked_${phase}`], counters[`kv_tag_pages_read_${phase}`]);
  }
  assert.equal(told.noticed + told.overtaken, told.injected, "every fault is accounted for");
  return told;
}

for (const rate of [0, RATE]) {
  test(`${rate === 0 ? "no fault, no incident" : `every fault is noticed`} (${runs} runs)`, () => {
    const total: Partial<Told> = {};
    for (let seed = first; seed < first + runs; seed++) {
      try {
        const told = run(seed, rate);
        for (const key of Object.keys(told) as (keyof Told)[]) total[key] = (total[key] ?? 0) + told[key];
      } catch (error) {
        throw new Error(`EDGEWISE_SEED=${seed}: ${(error as Error).message}`, { cause: error });
      }
    }
    console.log(`seeds from ${first}, faults at ${rate}: ${JSON.stringify(total)}`);
    if (rate === 0) assert.deepEqual([total.incidents, total.stale], [0, 0]);
    else if (runs > 20) assert.ok(total.injected! > 0 && total.noticed! > 0 && total.incidents! > 0);
  });
}
