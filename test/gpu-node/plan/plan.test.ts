// `edgewise plan`: the figures are those that the engine allocates by.
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { run as runCli } from "../../../gpu-node/cli.ts";
import { openModelRunner } from "../../../gpu-node/engine/open-runner.ts";
import { capacity } from "../../../gpu-node/kv/capacity.ts";
import type { PlanReport } from "../../../gpu-node/plan/plan.ts";

const fixture = (name: string) => fileURLToPath(new URL(`../../fixtures/golden/${name}`, import.meta.url));

async function run(context: TestContext, ...argv: string[]): Promise<{ code: number; printed: string }> {
  const log = context.mock.method(console, "log", () => {});
  const error = context.mock.method(console, "error", () => {});
  const code = await runCli(["plan", ...argv]);
  const lines = [...log.mock.calls, ...error.mock.calls].map((call) => String(call.arguments[0]));
  log.mock.restore();
  error.mock.restore();
  return { code, printed: lines.join("\n") };
}

const MLA = { kind: "mla", kvLora: 512, ropeDim: 64 } as const;

test("fp8 holds exactly twice the tokens of bf16, for every geometry; fp8-token less by its scales", () => {
  const geometries = [MLA, { kind: "gqa", kvHeads: 3, headDim: 96 } as const];
  for (const geometry of geometries) {
    const [bf16, fp8, token] = (["bf16", "fp8", "fp8-token"] as const).map((format) =>
      capacity(format, geometry, 61, 2 ** 34),
    );
    assert.equal(fp8.timesBf16, 2);
    assert.equal(bf16.bytesPerToken, 2 * fp8.bytesPerToken);
    assert.ok(token.timesBf16 < 2 && token.timesBf16 > 1.9);
  }
});

test("61 layers of 576 values: bytes per token and tokens per GB by hand", () => {
  const fp8 = capacity("fp8", MLA, 61, 1e9);
  assert.equal(fp8.bytesPerToken, 61 * 576);
  assert.equal(fp8.tokensPerGb, 64 * Math.floor(1e9 / (64 * 61 * 576)));
  assert.equal(fp8.poolPages, Math.floor(1e9 / (64 * 61 * 576)));
});

test("the pool holds as many pages as the engine allocates from the same memory", async (t) => {
  for (const name of ["llama", "deepseek-v3"]) {
    const dir = fixture(name);
    const { code, printed } = await run(t, dir, "--kv-gib", "0.001", "--json");
    assert.equal(code, 0);
    const report = JSON.parse(printed) as PlanReport;
    for (const { format, poolPages, bytesPerToken } of report.kv) {
      const settings = { kind: "model", dir, backend: "reference", kvFormat: format, slots: 10_000 } as const;
      const runner = openModelRunner({ ...settings, maxTokens: 1, maxLen: 256, kvBytes: 0.001 * 2 ** 30 });
      assert.equal(runner.model.kvBytesPerPage, 64 * bytesPerToken);
      assert.equal(runner.limits.pages, 1 + Math.floor((0.001 * 2 ** 30) / runner.model.kvBytesPerPage));
      assert.equal(poolPages, runner.limits.pages - 1, `${name} ${format}`);
      assert.equal(report.layers, runner.model.spec.layers.length);
      runner.dispose();
    }
    assert.ok(report.weightBytes > 0);
  }
});

test("people get a table; the folder may come as --model", async (t) => {
  const { code, printed } = await run(t, "--model", fixture("qwen3"));
  assert.equal(code, 0);
  assert.match(printed, /bytes\/token +tokens\/GB/);
  assert.match(printed, /fp8 .* 2\.00 /);
});

test("mistakes are one line", async (t) => {
  assert.match((await run(t, "--kv-gb", "1")).printed, /unknown flag --kv-gb; did you mean --kv-gib\?/);
  assert.match((await run(t, fixture("llama"), "--model", "x")).printed, /give the folder once/);
  const empty = await run(t, fixture(""));
  assert.equal(empty.code, 1);
  assert.match(empty.printed, /^edgewise: .*config\.json/);
});
