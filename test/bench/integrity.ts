// What page tags cost a decode step: two engines over one model, one without and one with, take turns step by step, so
// that whatever else the machine does hits both alike. Prints the paired difference; asserts nothing.
// On a CPU backend the processor time of the whole process is told as well, which other programs disturb less.
//   node_modules/.bin/node test/bench/integrity.ts [--context N] [--rows N] [--steps N] [--backend NAME] [--threads N]
import { cpus } from "node:os";
import { resolve } from "node:path";
import { Loop } from "../../gpu-node/engine/loop.ts";
import type { InboxMessage } from "../../gpu-node/engine/messages.ts";
import type { ModelRunner } from "../../gpu-node/engine/model-runner.ts";
import { openModelRunner } from "../../gpu-node/engine/open-runner.ts";
import { GREEDY } from "../../gpu-node/engine/sampling.ts";
import type { IntegrityMode } from "../../gpu-node/kv/tags.ts";
import { defaultsOf, parseFlags } from "../../gpu-node/options.ts";

const OPTIONS = {
  model: { type: "string", help: "", default: resolve(import.meta.dirname, "../../gpu-node/models/nano") },
  backend: { type: "string", choices: ["reference", "cpu", "cuda"], help: "", default: "cpu" },
  context: { type: "integer", min: 1, help: "", default: 8192 },
  rows: { type: "integer", min: 1, help: "", default: 4 },
  threads: { type: "integer", min: 1, help: "" },
  steps: { type: "integer", min: 2, help: "", default: 1000 },
} as const;

interface Arm {
  runner: ModelRunner;
  loop: Loop;
  times: number[];
  /** Processor time, milliseconds. */
  busy: number[];
}

const options = { ...defaultsOf(OPTIONS), ...parseFlags(OPTIONS, process.argv.slice(2)) };
const { context = 8192, rows = 4, steps = 1000 } = options;

function armOf(integrity: IntegrityMode): Arm {
  const maxLen = context + steps + 8;
  const runner = openModelRunner({
    kind: "model",
    dir: options.model!,
    backend: options.backend as "cpu",
    threads: options.threads,
    slots: rows,
    maxLen,
    integrity,
  });
  const inbox: InboxMessage[] = Array.from({ length: rows }, (_, handle) => {
    const prompt = Int32Array.from(
      { length: context },
      (_, i) => ((i + 1) * 7919 + handle * 104729) % runner.limits.vocab,
    );
    const bounds = {
      sampling: GREEDY,
      maxTokens: steps + 4,
      stopTokens: [],
      minTokens: 0,
      salt: "",
      label: "",
    };
    return { kind: "generate", handle: handle + 1, request: { prompt, ...bounds } };
  });
  const loop = new Loop(
    runner,
    performance,
    { next: () => inbox.shift() ?? null },
    { post() {} },
    {
      maxBatchTokens: runner.limits.maxTokens,
      maxRunning: rows,
      maxWaiting: rows,
      watermarkPages: 0,
      prefixCache: false,
      selfTestMs: 0,
      integrity,
    },
  );
  while (loop.counters.generated_tokens < rows * 2) loop.tick();
  return { runner, loop, times: [], busy: [] };
}

function step({ loop, times, busy }: Arm): void {
  const used = process.cpuUsage();
  const started = performance.now();
  loop.tick();
  times.push(performance.now() - started);
  const { user, system } = process.cpuUsage(used);
  busy.push((user + system) / 1000);
}

const mean = (values: number[]) => values.reduce((a, b) => a + b, 0) / values.length;
const quantile = (values: number[], q: number) =>
  values.toSorted((a, b) => a - b)[Math.floor(q * (values.length - 1))];

const [off, tags] = [armOf("off"), armOf("tags")];
for (let i = 0; i < steps; i++) for (const arm of i % 2 === 0 ? [off, tags] : [tags, off]) step(arm);

// The machine's other work makes a few steps much longer: the median of the paired differences, and an interval of its
// order statistics (binomial, 95 %), both as a share of the median step.
function compare(what: string, without: number[], withTags: number[]): void {
  const differences = withTags.map((time, i) => time - without[i]);
  const share = (ms: number) => `${((100 * ms) / quantile(without, 0.5)).toFixed(2)} %`;
  const at = (rank: number) => quantile(differences, Math.min(1, Math.max(0, rank / steps)));
  const half = (1.96 * Math.sqrt(steps)) / 2;
  const [low, middle, high] = [steps / 2 - half, steps / 2, steps / 2 + half].map(at);
  for (const [name, times] of [
    ["off", without],
    ["tags", withTags],
  ] as const) {
    const [p50, p95] = [quantile(times, 0.5), quantile(times, 0.95)];
    console.log(
      `${what}, ${name.padEnd(4)}: mean ${mean(times).toFixed(3)} ms, median ${p50.toFixed(3)}, p95 ${p95.toFixed(3)}`,
    );
  }
  console.log(
    `${what}, tags - off, paired: median ${(1000 * middle).toFixed(0)} us (${share(middle)}), ` +
      `95 % interval ${share(low)} to ${share(high)}`,
  );
}

console.log(
  `${cpus()[0].model}, ${cpus().length} threads, ${options.backend}, ${new Date().toISOString().slice(0, 10)}`,
);
console.log(
  `${rows} rows of ${context} to ${context + steps} tokens, ${steps} steps of each arm, taking turns`,
);
compare("time of a step", off.times, tags.times);
if (options.backend !== "cuda") compare("processor time of a step", off.busy, tags.busy);
for (const { runner } of [off, tags]) runner.dispose();
