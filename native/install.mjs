// Builds the native addon: run by `npm ci` (as the install script) and by `npm run build`. Plain JavaScript, because
// npm may run it with an older Node than the one the TypeScript needs.
//   EDGEWISE_CUDA=1|0   build the CUDA kernels, or do not; default: when nvcc and an NVIDIA driver are there
//   --force             build even when nothing has changed
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, openSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { availableParallelism, freemem } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

const native = fileURLToPath(new URL(".", import.meta.url));
const buildDir = join(native, "build");
const addon = join(buildDir, "Release", "edgewise.node");
const stamp = join(buildDir, "fingerprint");
const log = join(buildDir, "build.log");
const require = createRequire(import.meta.url);

function main() {
  const missing = missingTool();
  if (missing) fail(`${missing.name} is missing. On Debian and Ubuntu: apt-get install ${missing.debian}`);
  const cuda = wantsCuda();
  const fingerprint = fingerprintOf(cuda);
  if (!process.argv.includes("--force") && existsSync(addon) && readIfThere(stamp) === fingerprint) {
    say("the native addon is up to date");
    return;
  }
  say(cuda ? "building the native addon with CUDA ..." : "building the native addon for the CPU ...");
  const seconds = build(cuda);
  writeFileSync(stamp, fingerprint);
  say(`built in ${seconds} s (log: ${log})`);
}

function say(text) {
  console.log(`edgewise: ${text}`);
}

function fail(text) {
  console.error(`edgewise: ${text}`);
  process.exit(1);
}

function onPath(program) {
  return (process.env.PATH ?? "").split(delimiter).some((dir) => dir && existsSync(join(dir, program)));
}

function missingTool() {
  const tools = [
    {
      name: "a C++ compiler",
      debian: "g++",
      found: process.env.CXX || ["g++", "c++", "clang++"].some(onPath),
    },
    { name: "cmake", debian: "cmake", found: onPath("cmake") },
    { name: "make", debian: "make", found: onPath("ninja") || onPath("make") },
  ];
  return tools.find((tool) => !tool.found);
}

function wantsCuda() {
  const choice = process.env.EDGEWISE_CUDA;
  if (choice === "0") return false;
  const driver = existsSync("/proc/driver/nvidia/version");
  if (choice !== "1" && !(onPath("nvcc") && driver)) return false;
  if (!onPath("nvcc"))
    fail("EDGEWISE_CUDA=1, but nvcc is missing. Install the CUDA toolkit and put nvcc on the PATH");
  if (sources().some((path) => path.endsWith(".cu"))) return true;
  say("there are no CUDA kernels in this version: nothing CUDA to build");
  return false;
}

function sources() {
  return readdirSync(native, { recursive: true })
    .filter((path) => !path.startsWith("build") && /\.(cc|h|cu|cuh|txt|json)$/.test(path))
    .sort();
}

function fingerprintOf(cuda) {
  const hash = createHash("sha256");
  for (const path of sources())
    hash
      .update(path)
      .update("\0")
      .update(readFileSync(join(native, path)));
  for (const name of ["node-addon-api", "node-api-headers", "cmake-js"]) {
    hash.update(name + require(`${name}/package.json`).version);
  }
  return hash.update(JSON.stringify([cuda, process.env.CXX, process.env.CXXFLAGS])).digest("hex");
}

function readIfThere(path) {
  return existsSync(path) ? readFileSync(path, "utf8") : null;
}

function build(cuda) {
  // CMake refuses a build folder that was configured elsewhere: a copied or moved checkout starts over.
  const home = `CMAKE_HOME_DIRECTORY:INTERNAL=${native.replace(/\/$/, "")}\n`;
  if (!(readIfThere(join(buildDir, "CMakeCache.txt")) ?? home).includes(home))
    rmSync(buildDir, { recursive: true });
  mkdirSync(buildDir, { recursive: true });
  rmSync(stamp, { force: true });
  const started = Date.now();
  const cli = join(require.resolve("cmake-js/package.json"), "..", "bin", "cmake-js");
  // A compiler process takes up to a gigabyte.
  const jobs = Math.max(1, Math.min(availableParallelism(), Math.floor(freemem() / 2 ** 30)));
  const options = ["--directory", native, "--out", buildDir, "--parallel", String(jobs)];
  options.push(`--CDEDGEWISE_CUDA=${cuda ? "ON" : "OFF"}`);
  const out = openSync(log, "w");
  // Not `compile`: it keeps the options of an earlier build, and after a failure it deletes everything and tries again.
  const failed = ["configure", "build"].some((command) => {
    const stdio = ["ignore", out, out];
    return spawnSync(process.execPath, [cli, command, ...options], { stdio, cwd: native }).status !== 0;
  });
  if (failed || !existsSync(addon)) {
    console.error(readFileSync(log, "utf8").split("\n").slice(-40).join("\n"));
    fail(`the native addon did not build; the whole log is in ${log}`);
  }
  return Math.round((Date.now() - started) / 1000);
}

main();
