// The case tables of test/ops on CUDA: each op against its oracle, or the reference backend where it has none.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";
import { loadAddon } from "../../gpu-node/native/load.ts";
import { checkBad, checkCase, type OpCase, type OpCases } from "../ops/case.ts";
import type { Outcome, Table } from "./table.ts";

const TABLES = new URL("../ops/", import.meta.url).pathname;
/** Tests of several calls; they run on CUDA among others, see harness.ts there. */
const PROPERTY_TESTS = ["attention.test.ts", "invariance.test.ts", "kv.test.ts", "sample.test.ts"];
/** With `quick`, for runs that are a hundred times slower: cases with no tensor larger than this. */
const QUICK_ELEMENTS = 1 << 16;
const QUICK_CASES = 6;
const SEED = 20261129;

export interface OpsOptions {
  /** A few small cases per op: for compute-sanitizer. */
  quick: boolean;
  /** Only these ops; null: all. */
  ops: string[] | null;
}

export async function checkOps(table: Table, { quick, ops }: OpsOptions): Promise<void> {
  const onCuda = new Map(
    loadAddon()
      .ops()
      .map((op) => [op.name, op.backends.includes("cuda")]),
  );
  const cuda = openDevice({ backend: "cuda" });
  const reference = openDevice({ backend: "reference", threads: 1 });
  try {
    for (const file of readdirSync(TABLES).sort()) {
      if (!file.endsWith(".cases.ts")) continue;
      const cases = (await import(join(TABLES, file))).default as OpCases;
      if (ops && !ops.includes(cases.op)) continue;
      await table.check(`op ${cases.op}`, () =>
        onCuda.get(cases.op)
          ? checkTable(cases, quick ? small(cases.cases) : cases.cases, cuda, reference, quick)
          : { cases: 1, failures: ["has no CUDA kernel"] },
      );
    }
  } finally {
    cuda.dispose();
    reference.dispose();
  }
  if (quick || ops) return;
  for (const file of PROPERTY_TESTS) await table.check(`ops/${file}`, () => runTests(join(TABLES, file)));
}

function small(cases: OpCase[]): OpCase[] {
  const size = (opCase: OpCase) =>
    Math.max(
      ...Object.values(opCase.args).map((arg) =>
        arg !== null && typeof arg === "object" ? arg.shape.reduce((a, b) => a * b, 1) : 0,
      ),
    );
  const fitting = cases.filter((opCase) => size(opCase) <= QUICK_ELEMENTS);
  // Spread over the table: neighbours are alike.
  const stride = Math.max(1, Math.ceil(fitting.length / QUICK_CASES));
  return fitting.filter((_, i) => i % stride === 0);
}

function checkTable(
  table: OpCases,
  cases: OpCase[],
  cuda: OpDevice,
  reference: OpDevice,
  quick: boolean,
): Outcome {
  const variants = [{ name: "cuda", device: cuda }];
  if (!table.oracle) variants.unshift({ name: "reference", device: reference });
  const failures: string[] = [];
  let worst = 0;
  const attempt = (body: () => void) => {
    try {
      body();
    } catch (error) {
      failures.push(error instanceof Error ? error.message : String(error));
    }
  };
  cases.forEach((opCase, i) => {
    attempt(() => {
      worst = Math.max(worst, checkCase(table, opCase, SEED + i, variants).cuda);
    });
  });
  // Faults that a kernel reports are no errors, but compute-sanitizer need not see them.
  const bad = quick ? [] : (table.bad ?? []);
  for (const call of bad) attempt(() => checkBad(table, call, SEED, variants.slice(-1)));
  return { cases: cases.length + bad.length, worst, failures };
}

/** Runs a file of node:test in a process of its own, without the CPU's instruction sets. */
async function runTests(file: string): Promise<Outcome> {
  const flags = ["--disable-warning=ExperimentalWarning", "--test", "--test-reporter=tap"];
  const env = { ...process.env, EDGEWISE_BACKENDS: "cuda", EDGEWISE_SEED: String(SEED) };
  const child = spawn(process.execPath, [...flags, file], { env, stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  child.stdout.on("data", (data) => {
    output += data;
  });
  const [code] = await once(child, "close");
  const passed = Number(/^# pass (\d+)$/m.exec(output)?.[1] ?? 0);
  const failures = [...output.matchAll(/^\s*not ok \d+ - (.*)$/gm)]
    .map((match) => match[1])
    .filter((name) => !name.endsWith(".ts"));
  if (failures.length === 0 && (code !== 0 || passed === 0)) failures.push(`exit code ${code}`);
  return { cases: passed + failures.length, failures };
}
