// Faults of the KV cache's bookkeeping in a real model, by the phase of the request that they hit: by what each is
// noticed and how soon, that no wrong token leaves, and that the neighbours' answers keep their bits. The table is
// printed at the end.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { Loop } from "../../../gpu-node/engine/loop.ts";
import type { EndedRequest, InboxMessage } from "../../../gpu-node/engine/messages.ts";
import type { ModelRunner } from "../../../gpu-node/engine/model-runner.ts";
import { openModelRunner } from "../../../gpu-node/engine/open-runner.ts";
import { PLAN_LAYOUT as L } from "../../../gpu-node/engine/plan.ts";
import type { EngineRequest } from "../../../gpu-node/engine/request.ts";
import { unpackTokens } from "../../../gpu-node/engine/results.ts";
import { GREEDY } from "../../../gpu-node/engine/sampling.ts";
import type { Incident } from "../../../gpu-node/kv/incidents.ts";
import { TAG_LAYOUT as T } from "../../../gpu-node/kv/tag-layout.ts";

type Phase = "prefill" | "decode" | "prefix";
type Backend = "cpu" | "reference";

interface Run {
  loop: Loop;
  runner: ModelRunner;
  /** Spoils the record of the victim that this is true of, in the first step that has one. */
  spoil: ((record: Int32Array, victim: EngineRequest) => boolean) | null;
}

const VICTIM = 1;
const NEIGHBOURS = [2, 3];
const INTRUDER = 4;
const PROMPT = 185;

const victimOf = ({ loop }: Run) => loop.scheduler.sequences.running.find(({ handle }) => handle === VICTIM)!;
const neighbourOf = ({ loop }: Run) =>
  loop.scheduler.sequences.running.find(({ handle }) => handle === NEIGHBOURS[0])!;

interface Fault {
  phases: Phase[];
  cause: string;
  inject(run: Run): void;
}

const FAULTS: Record<string, Fault> = {
  "page-table entry changed": {
    phases: ["prefill", "decode"],
    cause: "mapping",
    inject: (run) => run.runner.misdirect(victimOf(run).slot, 0, neighbourOf(run).pages[0]),
  },
  "page-table entry beyond the pool": {
    phases: ["prefill", "decode"],
    cause: "range",
    inject: (run) => run.runner.misdirect(victimOf(run).slot, 1, 1 << 24),
  },
  "page handed out twice": {
    phases: ["prefill", "decode"],
    cause: "generation",
    inject(run) {
      const { pool } = run.loop.scheduler.sequences;
      const allocate = pool.allocate.bind(pool);
      const [page] = victimOf(run).pages;
      pool.allocate = () => {
        pool.allocate = allocate;
        return page;
      };
    },
  },
  "page freed while in a table": {
    phases: ["prefill", "decode"],
    cause: "generation",
    inject(run) {
      const { pages, pageCount } = victimOf(run);
      run.loop.scheduler.sequences.pool.release(pages[pageCount - 1]);
    },
  },
  "tag of a new page not written": {
    phases: ["decode", "prefix"],
    cause: "generation",
    inject(run) {
      run.spoil = (record, { pages, pageCount }) => {
        if (record[0] !== T.issue || record[1] !== pages[pageCount - 1]) return false;
        record[0] = T.nothing;
        return true;
      };
    },
  },
  "expectation not uploaded": {
    phases: ["decode", "prefix"],
    cause: "epoch",
    inject(run) {
      run.spoil = (record, { slot }) => {
        if (record[0] !== T.bind || record[1] !== slot) return false;
        record[0] = T.nothing;
        return true;
      };
    },
  },
  "expectation of an earlier grant uploaded": {
    phases: ["decode", "prefix"],
    cause: "generation",
    inject(run) {
      run.spoil = (record, { slot }) => {
        if (record[0] !== T.bind || record[1] !== slot) return false;
        record[4] -= 2;
        return true;
      };
    },
  },
  "expectation of another account uploaded": {
    phases: ["decode", "prefix"],
    cause: "owner",
    inject(run) {
      run.spoil = (record, { slot }) => {
        if (record[0] !== T.bind || record[1] !== slot) return false;
        record[5]++;
        return true;
      };
    },
  },
  "check not launched": {
    phases: ["prefill", "decode"],
    cause: "unchecked",
    inject({ runner }) {
      const tables = runner.tags!;
      const submit = runner.submit.bind(runner);
      runner.submit = (plan, tags) => {
        tables.check = () => {};
        Reflect.deleteProperty(runner, "submit");
        try {
          return submit(plan, tags);
        } finally {
          Reflect.deleteProperty(tables, "check");
        }
      };
    },
  },
  "prefix entry kept after eviction": {
    phases: ["prefix"],
    cause: "stale-entry",
    inject({ loop }) {
      // What eviction does to a cached page, without its entry: the page gets another owner and comes back.
      const { pool, prefix, tracker } = loop.scheduler.sequences;
      for (const page of prefix.pages()) if (pool.refs[page] === 0) tracker.issue(page, { low: 1, high: 1 });
    },
  },
};

interface Answer {
  tokens: number[];
  logprobs: number[];
  end: EndedRequest | null;
}

interface Outcome {
  answers: Map<number, Answer>;
  incidents: Incident[];
  injectedAt: number;
  cached: number;
}

function runnerOf(backend: Backend, depth: number): ModelRunner {
  const dir = fileURLToPath(new URL("../../fixtures/golden/llama", import.meta.url));
  const size = { slots: 6, maxLen: 256, maxTokens: 64, kvBytes: 2 ** 22, depth, threads: 1 };
  const options = { activations: "f32", kvFormat: "f32", deterministic: true, integrity: "tags" } as const;
  return openModelRunner({ kind: "model", dir, backend, ...size, ...options });
}

function request(handle: number, length: number, maxTokens: number): InboxMessage {
  const prompt = Int32Array.from({ length }, (_, i) => (i * 37 + handle * 101) % 60);
  const sampling = { ...GREEDY, topLogprobs: 0 };
  return {
    kind: "generate",
    handle,
    request: { prompt, sampling, maxTokens, stopTokens: [], minTokens: 0, salt: "a", label: "" },
  };
}

/** One run of victim, neighbours and intruder, with or without a fault. */
function play(backend: Backend, depth: number, phase: Phase, fault: Fault | null): Outcome {
  const runner = runnerOf(backend, depth);
  const inbox: InboxMessage[] = [];
  const answers = new Map<number, Answer>();
  const incidents: Incident[] = [];
  const answer = (handle: number) => {
    const known = answers.get(handle) ?? { tokens: [], logprobs: [], end: null };
    answers.set(handle, known);
    return known;
  };
  const run: Run = { loop: null as unknown as Loop, runner, spoil: null };
  const submit = runner.submit;
  let injectedAt = 0;
  const watched = new Proxy(runner, {
    get(target, name) {
      if (name !== "submit") {
        const value = Reflect.get(target, name, target);
        return typeof value === "function" ? value.bind(target) : value;
      }
      return (plan: Int32Array, tags: Int32Array | null) => {
        const copy = tags?.slice() ?? null;
        const victim = victimOf(run);
        for (let i = 1; copy && victim && run.spoil && i <= copy[0]; i++) {
          if (!run.spoil(copy.subarray(8 * i, 8 * i + 8), victim)) continue;
          run.spoil = null;
          injectedAt = plan[L.h_step_low];
        }
        return target.submit(plan, copy);
      };
    },
  });
  const loop = new Loop(
    watched,
    performance,
    { next: () => inbox.shift() ?? null },
    {
      post(tokens, ended) {
        unpackTokens(tokens, (handle, token, logprobs) => {
          answer(handle).tokens.push(token);
          answer(handle).logprobs.push(logprobs!.logprob);
        });
        for (const end of ended) answer(end.handle).end = end;
      },
    },
    {
      maxBatchTokens: runner.limits.maxTokens,
      maxRunning: 6,
      maxWaiting: 10,
      watermarkPages: 0,
      integrity: "tags",
      selfTestMs: 0,
      incidentsPerMinute: 100,
      onIncident: (incident) => incidents.push(incident),
    },
  );
  run.loop = loop;
  for (const handle of NEIGHBOURS) inbox.push(request(handle, 66 + handle, 36));
  if (phase === "prefix") inbox.push({ ...request(VICTIM, PROMPT, 1), handle: 9 } as InboxMessage);
  const time = () => {
    if (phase === "prefix") return answers.get(9)?.end !== undefined && answers.get(9)?.end !== null;
    if (phase === "prefill") return victimOf(run)?.computed >= 64;
    return (answers.get(VICTIM)?.tokens.length ?? 0) >= 3;
  };
  if (phase !== "prefix") inbox.push(request(VICTIM, PROMPT, 20));
  for (let tick = 0; tick < 2000; tick++) {
    if (injectedAt === 0 && time()) {
      injectedAt = loop.counters.steps + loop.stepsInFlight + 1;
      fault?.inject(run);
      if (phase === "prefix") inbox.push(request(VICTIM, PROMPT, 20));
      inbox.push(request(INTRUDER, 30, 12));
    }
    if (!loop.tick() && injectedAt > 0) break;
  }
  assert.equal(runner.submit, submit, "the runner is as it was");
  runner.dispose();
  const { pool } = loop.scheduler.sequences;
  assert.equal(pool.free + pool.cached + pool.quarantined, pool.total, "the pool is whole");
  assert.ok(pool.refs.every((count) => count === 0));
  return { answers, incidents, injectedAt, cached: loop.counters.cached_tokens };
}

const rows: string[] = [];
after(() => {
  const head = "fault | phase | backend, depth | noticed as | steps | outcome | tokens leaked";
  console.log([head, ...rows].join("\n"));
});

for (const [backend, depth] of [
  ["cpu", 1],
  ["cpu", 2],
  ["reference", 1],
] as const) {
  const clean = new Map<Phase, Outcome>();
  const cleanOf = (phase: Phase) => {
    const known = clean.get(phase) ?? play(backend, depth, phase, null);
    clean.set(phase, known);
    return known;
  };
  for (const [name, fault] of Object.entries(FAULTS)) {
    for (const phase of fault.phases) {
      test(`${name}, ${phase}, ${backend} at depth ${depth}: noticed, nothing leaks, neighbours keep their bits`, () => {
        const wanted = cleanOf(phase);
        assert.deepEqual(wanted.incidents, []);
        if (phase === "prefix") assert.equal(wanted.cached, 128);
        const got = play(backend, depth, phase, fault);

        const noticed = got.incidents.filter((incident) => incident.request === VICTIM);
        const seen = noticed.map(({ cause }) => cause);
        assert.deepEqual(seen, [fault.cause]);
        const [first] = noticed;
        const steps = first.step === 0 ? 0 : first.step - got.injectedAt + 1;
        const [victim, right] = [got, wanted].map(({ answers }) => answers.get(VICTIM)!);
        const leaked = victim.tokens.filter((token, i) => token !== right.tokens[i]).length;
        assert.equal(leaked, 0);
        assert.ok(victim.end, "the request ends");
        if (first.outcome === "failed") assert.ok("code" in victim.end && victim.end.code === "kv_integrity");
        else assert.deepEqual(victim.tokens, right.tokens);

        // A check that was not launched fails every row of its step.
        const others = fault.cause === "unchecked" ? [] : [...NEIGHBOURS, INTRUDER];
        assert.equal(got.incidents.length, fault.cause === "unchecked" ? got.incidents.length : 1);
        for (const handle of others) {
          const [mine, unharmed] = [got, wanted].map(({ answers }) => answers.get(handle)!);
          assert.deepEqual(mine.tokens, unharmed.tokens, `request ${handle}`);
          assert.deepEqual(mine.logprobs, unharmed.logprobs, `request ${handle}`);
        }
        rows.push(
          [name, phase, `${backend}, ${depth}`, seen.join(), steps, first.outcome, leaked].join(" | "),
        );
      });
    }
  }
}
