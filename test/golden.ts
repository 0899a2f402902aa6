// Holds one reference checkpoint (config, weights, golden.safetensors) to the bounds of an honest implementation:
//   node test/golden.ts DIR
// f32 arithmetic on both CPU backends at several chunk sizes, then bf16 arithmetic with a bf16 KV cache.
import { execFileSync } from "node:child_process";
import { basename, join } from "node:path";
import { type Figures, goldenBounds, violations } from "./golden-bounds.ts";

interface Run {
  backend: "reference" | "cpu";
  precision: "f32" | "bf16";
  chunk: string;
}

const RUNS: Run[] = [
  { backend: "cpu", precision: "f32", chunk: "1" },
  { backend: "cpu", precision: "f32", chunk: "7" },
  { backend: "cpu", precision: "f32", chunk: "64" },
  { backend: "cpu", precision: "f32", chunk: "4096" },
  { backend: "reference", precision: "f32", chunk: "4096" },
  { backend: "cpu", precision: "bf16", chunk: "1" },
  { backend: "cpu", precision: "bf16", chunk: "4096" },
  { backend: "reference", precision: "bf16", chunk: "4096" },
];

function evaluate(dir: string, run: Run): Figures {
  const golden = join(dir, "golden.safetensors");
  const flags = [
    "--backend",
    run.backend,
    "--activations",
    run.precision,
    "--kv",
    run.precision,
    "--chunk",
    run.chunk,
  ];
  const args = ["gpu-node/cli.ts", "eval", "logits", "--model", dir, "--golden", golden, "--json", ...flags];
  return JSON.parse(execFileSync(process.execPath, args, { encoding: "utf8" })) as Figures;
}

const dir = process.argv[2];
if (!dir) throw new Error("usage: node test/golden.ts DIR");
const dense = /^(llama|qwen3)-[a-z]$/.test(basename(dir));
let failed = false;
for (const run of RUNS) {
  const report = evaluate(dir, run);
  const bad = violations(goldenBounds(report, run.precision, dense));
  failed ||= bad.length > 0;
  const label = `${run.backend} ${run.precision} chunk ${run.chunk}`;
  const figures = `max_abs ${report.max_abs.toExponential(1)}, median_kl ${report.median_kl.toExponential(1)}, top1 ${report.top1_agreement.toFixed(3)}`;
  console.log(
    `${bad.length ? "FAIL" : "ok  "} ${label}: ${figures}${bad.length ? ` (${bad.join(", ")})` : ""}`,
  );
}
process.exit(failed ? 1 : 0);
