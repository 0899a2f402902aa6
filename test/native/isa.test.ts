// Code for newer processors is reached only through the kernel table.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { test } from "node:test";
import { addonPath } from "../../gpu-node/native/load.ts";
import { availableIsas } from "../ops/harness.ts";

const hasObjdump = spawnSync("objdump", ["--version"]).status === 0;

/** Functions of the addon with an AVX instruction (all of them start with "v"), by mangled name. */
function functionsWithAvx(): string[] {
  const listing = execFileSync("objdump", ["-d", "--no-show-raw-insn", addonPath() as string], {
    encoding: "utf8",
    maxBuffer: 2 ** 30,
  });
  const found = new Set<string>();
  let name = "";
  for (const line of listing.split("\n")) {
    const header = /^[0-9a-f]+ <(.+)>:$/.exec(line);
    if (header) name = header[1];
    else if (/^\s+[0-9a-f]+:\s+v[a-z]/.test(line) && !/\s(verr|verw)\b/.test(line)) found.add(name);
  }
  return [...found];
}

test("only functions in the avx2 and avx512 namespaces hold AVX instructions", {
  skip: !hasObjdump && "no objdump",
}, () => {
  const functions = functionsWithAvx();
  const fast = functions.filter((name) => /8edgewise(4avx2|6avx512)/.test(name));
  assert.ok(fast.length > 10, "the disassembly shows the fast kernels");
  assert.deepEqual(
    functions.filter((name) => !fast.includes(name)),
    [],
  );
});

test("EDGEWISE_CPU_ISA limits the instruction set", () => {
  const module = new URL("../../gpu-node/native/load.ts", import.meta.url).href;
  const script = `import { loadAddon } from ${JSON.stringify(module)};
    console.log(loadAddon().openDevice({ backend: "cpu", threads: 1 }).isa);`;
  for (const isa of availableIsas()) {
    const out = execFileSync(process.execPath, ["--input-type=module", "-e", script], {
      encoding: "utf8",
      env: { ...process.env, EDGEWISE_CPU_ISA: isa },
    });
    assert.equal(out.trim(), isa);
  }
});
