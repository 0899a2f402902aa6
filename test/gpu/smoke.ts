// The smoke test of the CUDA backend, on a machine with an H100 or H200:
//   node test/gpu/smoke.ts [--goldens DIR] [--only ops|models|graphs] [--quick] [--ops a,b]
// Needs Node.js (22.18 or newer), this checkout and the built addon; no npm packages. Prints what was checked, the number
// of cases, the largest error as a share of its bound, and seconds. Exit code: 0, 1 when a check failed, 2 for a wrong
// flag, 3 when there is no GPU or no addon with CUDA kernels.
import { existsSync } from "node:fs";
import { parseArgs } from "node:util";
import { openDevice } from "../../gpu-node/native/device.ts";
import { loadAddon } from "../../gpu-node/native/load.ts";
import { checkGraphs } from "./graphs.ts";
import { checkBundled, checkModels } from "./models.ts";
import { checkOps } from "./ops.ts";
import { Table } from "./table.ts";

const PARTS = ["ops", "graphs", "models", "bundled"];
const NO_GPU = 3;

async function main(): Promise<number> {
  const { values: flags } = parseArgs({
    options: {
      goldens: { type: "string" },
      only: { type: "string" },
      quick: { type: "boolean", default: false },
      ops: { type: "string" },
    },
  });
  const parts = flags.only?.split(",") ?? PARTS;
  const unknown = parts.find((part) => !PARTS.includes(part));
  if (unknown !== undefined) throw new TypeError(`--only ${unknown}: must be ${PARTS.join(", ")}`);
  const missing = whyNoGpu();
  if (missing !== null) {
    const gpu = existsSync("/proc/driver/nvidia/version")
      ? ""
      : "there is no GPU here, or no NVIDIA driver; ";
    console.error(`smoke: nothing was checked: ${gpu}${missing}`);
    return NO_GPU;
  }
  const table = new Table();
  console.log(`${gpuName()}, Node ${process.version}, ${new Date().toISOString().slice(0, 10)}`);
  table.heading();
  const { quick } = flags;
  if (parts.includes("ops")) await checkOps(table, { quick, ops: flags.ops?.split(",") ?? null });
  if (parts.includes("graphs")) await checkGraphs(table, { quick });
  if (parts.includes("models")) await checkModels(table, { quick, goldens: flags.goldens ?? null });
  if (parts.includes("bundled")) await checkBundled(table, { quick });
  console.log(`smoke: ${table.failed ? "FAILED" : "ok"}, ${table.total()}`);
  return table.failed ? 1 : 0;
}

/** Null when the CUDA backend can be opened. */
function whyNoGpu(): string | null {
  try {
    const cuda = loadAddon()
      .backends()
      .find(({ name }) => name === "cuda");
    const reason = cuda ? cuda.unavailable : "the addon does not know CUDA";
    return reason?.endsWith("no CUDA kernels")
      ? `${reason}; EDGEWISE_CUDA=1 npm run build makes them`
      : reason;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function gpuName(): string {
  const device = openDevice({ backend: "cuda" });
  try {
    return device.isa;
  } finally {
    device.dispose();
  }
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof TypeError)) throw error;
  console.error(`smoke: ${error.message}`);
  process.exitCode = 2;
}
