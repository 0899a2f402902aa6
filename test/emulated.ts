// The CUDA kernels without a GPU: builds the addon with CUDA emulated on the CPU (native/cuda/emulator) and runs on it
// what the smoke test runs on a GPU, but less of it: npm run test:emulated [-- --full]
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { availableParallelism } from "node:os";
import { join } from "node:path";

const ROOT = new URL("..", import.meta.url).pathname;
const BUILD = join(ROOT, "native/build-emulated");
const ADDON = join(BUILD, "Release/edgewise.node");
const NODE = [process.execPath, "--disable-warning=ExperimentalWarning"];
// A few small cases of each op; --full runs the whole tables, which takes many minutes.
const OPS = process.argv.includes("--full") ? ["--only", "ops"] : ["--only", "ops", "--quick"];
const RUNS = [
  ["test/gpu/smoke.ts", ...OPS],
  ["test/gpu/smoke.ts", "--only", "graphs,models", "--quick"],
  ["--test", "--test-reporter=dot", "test/native/capture.test.ts", "test/ops/sample.test.ts"],
];

function build(): void {
  // The emulated kernels are compared with float64 and with one level of the CPU backend; the others have their tests.
  const settings = ["-DEDGEWISE_CUDA=emulated", "-DEDGEWISE_ISAS=portable"];
  for (const args of [
    ["-S", join(ROOT, "native"), "-B", BUILD, ...settings],
    ["--build", BUILD, "--parallel", String(availableParallelism())],
  ]) {
    const { status, stdout, stderr } = spawnSync("cmake", args, { cwd: ROOT, encoding: "utf8" });
    if (status !== 0) throw new Error(`cmake ${args.join(" ")} failed:\n${stdout}${stderr}`);
  }
}

/** Resolves with whether it ended well; its output comes in one piece. */
async function run(args: string[]): Promise<boolean> {
  const env = { ...process.env, EDGEWISE_ADDON: ADDON, EDGEWISE_CPU_ISA: "portable" };
  const child = spawn(NODE[0], [...NODE.slice(1), ...args], { cwd: ROOT, env });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text) => {
      output += text;
    });
  }
  const [code, signal] = await once(child, "close");
  console.log(`\n${args.join(" ")}\n${output}`);
  if (code !== 0) console.log(`ended with ${signal ?? code}`);
  return code === 0;
}

const began = Date.now();
const seconds = () => `${Math.round((Date.now() - began) / 1000)} s`;
build();
console.log(`built ${ADDON} in ${seconds()}`);
const results = await Promise.all(RUNS.map(run));
console.log(`emulated CUDA: ${results.every(Boolean) ? "ok" : "FAILED"}, ${seconds()}`);
process.exitCode = results.every(Boolean) ? 0 : 1;
