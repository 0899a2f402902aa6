// The benchmark measures what it says; how fast that is, no test asserts.
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { type BenchReport, main } from "../../../gpu-node/bench/bench.ts";
import { decodeBytes, linearOperations, weightSizes } from "../../../gpu-node/bench/floors.ts";
import { median } from "../../../gpu-node/bench/measure.ts";
import { openModelRunner } from "../../../gpu-node/engine/open-runner.ts";
import { loadAddon } from "../../../gpu-node/native/load.ts";

const fixture = (name: string) => fileURLToPath(new URL(`../../fixtures/golden/${name}`, import.meta.url));

async function run(context: TestContext, argv: string[]): Promise<{ code: number; printed: string }> {
  const log = context.mock.method(console, "log", () => {});
  const error = context.mock.method(console, "error", () => {});
  const code = await main(argv);
  const lines = [...log.mock.calls, ...error.mock.calls].map((call) => String(call.arguments[0]));
  return { code, printed: lines.join("\n") };
}

const quick = ["--model", fixture("deepseek-v3"), "--steps", "8", "--runs", "1", "--threads", "1"];

test("the report has a figure and a floor for every batch size, prefill and the first token", async (t) => {
  const { code, printed } = await run(t, [...quick, "--json"]);
  assert.equal(code, 0);
  const report = JSON.parse(printed) as BenchReport;
  assert.deepEqual(
    report.decode.map(({ batch }) => batch),
    [1, 16, 64],
  );
  for (const { tokensPerSecond, stepMs, scheduleMs, outsideShare, floor } of report.decode) {
    for (const value of [tokensPerSecond, stepMs, scheduleMs, floor.seconds, floor.fraction])
      assert.ok(value > 0);
    assert.ok(outsideShare > 0 && outsideShare < 1);
  }
  assert.ok(report.prefill.tokensPerSecond > 0 && report.prefill.floor.seconds > 0);
  assert.ok(report.firstToken.ms > 0);
  assert.match(report.device, /cpu .* 1 threads/);
});

test("without --json the same is printed for people, with its floors", async (t) => {
  const { printed } = await run(t, quick);
  assert.match(printed, /decode, batch 64 .* tokens\/s/);
  assert.equal(printed.match(/floor /g)?.length, 4);
});

test("a folder without a model is one line and exit code 1", async (t) => {
  const { code, printed } = await run(t, ["--model", fixture("")]);
  assert.equal(code, 1);
  assert.match(printed, /^edgewise: .*config\.json/);
});

test("floors count the bytes of a checkpoint once, and of its experts those that a batch can reach", () => {
  const dir = fixture("deepseek-v3");
  const runner = openModelRunner({ kind: "model", dir, backend: "cpu", threads: 1, kvBytes: 2 ** 22 });
  const sizes = weightSizes(runner.model, dir, loadAddon().mapFile);
  assert.ok(sizes.dense > 0 && sizes.experts > 0 && sizes.expertShare > 0 && sizes.expertShare < 1);
  const one = decodeBytes(runner.model, sizes, 1, 0);
  assert.ok(Math.abs(one - sizes.dense - sizes.expertShare * sizes.experts) < 1);
  const many = decodeBytes(runner.model, sizes, 1000, 0);
  assert.ok(Math.abs(many - sizes.dense - sizes.experts) < 1);
  const context = decodeBytes(runner.model, sizes, 2, 64) - decodeBytes(runner.model, sizes, 2, 0);
  assert.equal(Math.round(context), 2 * runner.model.kvBytesPerPage);
  const active = sizes.denseElements + sizes.expertShare * sizes.expertElements;
  assert.equal(linearOperations(sizes), 2 * active);
  runner.dispose();
});

test("the median of an odd and an even number of times", () => {
  assert.equal(median([5, 1, 3]), 3);
  assert.equal(median([4, 1, 3, 2]), 3);
});
