// Runs small cases of every op under NVIDIA's compute-sanitizer, and captured graphs under its memcheck:
//   node test/gpu/sanitize.ts [--tools memcheck,racecheck,initcheck,synccheck] [--ops a,b] [--captures N]
// Prints one line per run; whole reports are kept in .edgewise/. Exit code: 0, 1 when a tool found an error or a check
// failed, 2 for a wrong flag, 3 without compute-sanitizer or without a GPU.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, existsSync, mkdirSync } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { summaryOf } from "./sanitizer-summary.ts";

const TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"];
const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const LOGS = join(ROOT, ".edgewise");
const MISSING = 3;

interface Run {
  name: string;
  tool: string;
  /** The script and its arguments. */
  script: string[];
}

async function main(): Promise<number> {
  const { values: flags } = parseArgs({
    options: {
      tools: { type: "string", default: TOOLS.join(",") },
      ops: { type: "string" },
      captures: { type: "string", default: "1000" },
    },
  });
  const tools = flags.tools.split(",");
  const unknown = tools.find((tool) => !TOOLS.includes(tool));
  if (unknown !== undefined) throw new TypeError(`--tools ${unknown}: must be of ${TOOLS.join(", ")}`);
  const sanitizer = findSanitizer();
  if (!sanitizer) {
    const where = "is neither on the PATH nor in /usr/local/cuda/bin; it comes with the CUDA toolkit";
    console.error(`sanitize: compute-sanitizer ${where}`);
    return MISSING;
  }
  const ops = ["test/gpu/smoke.ts", "--only", "ops", "--quick", ...(flags.ops ? ["--ops", flags.ops] : [])];
  const runs: Run[] = tools.map((tool) => ({ name: `${tool}, ops`, tool, script: ops }));
  if (tools.includes("memcheck")) {
    const script = ["test/gpu/graphs.ts", flags.captures];
    runs.push({ name: `memcheck, ${flags.captures} graphs`, tool: "memcheck", script });
  }
  mkdirSync(LOGS, { recursive: true });
  let failed = 0;
  for (const run of runs) {
    const code = await sanitize(sanitizer, run);
    if (code === MISSING) return MISSING;
    failed += code === 0 ? 0 : 1;
  }
  console.log(`sanitize: ${failed === 0 ? "ok" : "FAILED"}, ${runs.length} runs, ${failed} failed`);
  return failed === 0 ? 0 : 1;
}

function findSanitizer(): string | undefined {
  const dirs = [...(process.env.PATH ?? "").split(delimiter).filter(Boolean), "/usr/local/cuda/bin"];
  return dirs.map((dir) => join(dir, "compute-sanitizer")).find((path) => existsSync(path));
}

/** @returns 0 when clean, 1 when not, MISSING when the script found no GPU */
async function sanitize(sanitizer: string, { name, tool, script }: Run): Promise<number> {
  const log = join(LOGS, `sanitize-${name.replaceAll(/[^a-z0-9]+/g, "-")}.log`);
  const node = [process.execPath, "--expose-gc", "--disable-warning=ExperimentalWarning", ...script];
  const began = performance.now();
  const child = spawn(sanitizer, ["--tool", tool, ...node], { cwd: ROOT, stdio: ["ignore", "pipe", "pipe"] });
  const file = createWriteStream(log);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      file.write(text);
    });
  }
  const [code] = await once(child, "close");
  file.end();
  if (code === MISSING) {
    console.error(output.trim());
    return MISSING;
  }
  const found = summaryOf(output);
  const seconds = ((performance.now() - began) / 1000).toFixed(0);
  const ok = code === 0 && found !== null && found.errors === 0;
  const what = found === null ? "printed no summary" : `${found.errors} errors`;
  console.log(
    `${name.padEnd(28)} ${what}, exit code ${code}, ${seconds} s  ${ok ? "ok" : `FAILED, see ${log}`}`,
  );
  for (const line of ok ? [] : (found?.first ?? [])) console.log(`    ${line}`);
  return ok ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  if (!(error instanceof TypeError)) throw error;
  console.error(`sanitize: ${error.message}`);
  process.exitCode = 2;
}
