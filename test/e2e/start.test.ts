// `npm start` as a person uses it: what it prints works when pasted, and nothing stays behind.

import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { ROOT } from "../../gpu-node/local/stack.ts";
import { BUNDLED, freePorts, MODEL, metrics, SKIP, sleep } from "./harness.ts";

const run = promisify(execFile);
const READY_MS = 60_000;
const END_MS = 15_000;

interface Started {
  child: ChildProcess;
  output: () => string;
  exited: Promise<number | null>;
  /** Resolves when the output holds `text`. */
  says(text: string): Promise<void>;
}

function start(flags: string[], env: NodeJS.ProcessEnv = {}): Started {
  const child = spawn(join(ROOT, "bin/edgewise"), ["start", ...flags], { env: { ...process.env, ...env } });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (data) => {
      output += data;
    });
  }
  const exited = new Promise<number | null>((resolve) => child.once("exit", resolve));
  return {
    child,
    exited,
    output: () => output,
    async says(text) {
      for (const end = Date.now() + READY_MS; !output.includes(text); await sleep(50)) {
        if (child.exitCode !== null || Date.now() > end) assert.fail(`never said ${text}:\n${output}`);
      }
    },
  };
}

/** Every process below `pid`, by /proc. */
function descendants(pid: number): number[] {
  const parents = new Map<number, number>();
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const [, parent] = /^\d+ \(.*\) \S (\d+)/s.exec(readFileSync(`/proc/${name}/stat`, "utf8")) ?? [];
      parents.set(Number(name), Number(parent));
    } catch {
      // It ended while we looked.
    }
  }
  const found: number[] = [];
  const below = (root: number) => {
    for (const [child, parent] of parents) {
      if (parent !== root) continue;
      found.push(child);
      below(child);
    }
  };
  below(pid);
  return found;
}

function alive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

async function assertAllGone(pids: number[]): Promise<void> {
  for (const end = Date.now() + END_MS; pids.some(alive) && Date.now() < end; ) await sleep(50);
  assert.deepEqual(pids.filter(alive), []);
}

/** The text of a streamed chat completion. */
function contentOf(stream: string): string {
  const chunks = [...stream.matchAll(/^data: (\{.*)$/gm)].map(([, data]) => JSON.parse(data));
  return chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("");
}

describe("start", { skip: SKIP }, () => {
  const flagsFor = ([port, nodePort]: number[]) => [
    ...["--model", MODEL, "--port", String(port), "--node-port", String(nodePort)],
  ];

  test("the three printed commands work when pasted, and Ctrl-C leaves no process", async () => {
    const started = start(flagsFor(await freePorts(2)));
    await started.says("Ctrl-C stops everything.");
    const text = started.output();
    assert.match(text, /API key\s+ew_local_\S+/);
    const [native, openai, client] = text
      .slice(text.indexOf("# Workers AI style"), text.indexOf("Ctrl-C stops"))
      .split(/^# .*$/m)
      .slice(1);
    const paste = async (command: string) => (await run("sh", ["-c", command], { cwd: ROOT })).stdout;
    const envelope = JSON.parse(await paste(native));
    assert.equal(envelope.success, true);
    const streamed = await paste(openai);
    assert.match(streamed, /"finish_reason":"(stop|length)"[\s\S]*data: \[DONE\]/);
    const answers = [envelope.result.response, contentOf(streamed), await paste(client)];
    for (const answer of answers) assert.match(answer, MODEL === BUNDLED ? /Answer: 585\s*$/ : /\S/);

    const pids = descendants(started.child.pid!);
    assert.ok(pids.length >= 4, "node, wrangler and workerd were expected");
    started.child.kill("SIGINT");
    assert.equal(await started.exited, 0, started.output());
    await assertAllGone(pids);
  });

  test("flags about numbers and memory reach the node: of FP8 twice as many pages fit", async () => {
    const pages: number[] = [];
    for (const kv of ["bf16", "fp8"]) {
      const [port, nodePort] = await freePorts(2);
      const started = start([...flagsFor([port, nodePort]), "--kv", kv, "--kv-gib", "0.01"]);
      await started.says("Ctrl-C stops everything.");
      pages.push((await metrics(`http://127.0.0.1:${nodePort}`)).pages_total);
      started.child.kill("SIGTERM");
      assert.equal(await started.exited, 0, started.output());
    }
    const [bf16, fp8] = pages;
    assert.ok(bf16 > 0 && fp8 >= 2 * bf16 && fp8 <= 2 * bf16 + 1, `${bf16} and ${fp8} pages`);
  });

  for (const signal of ["SIGTERM", "SIGHUP"] as const) {
    test(`${signal} in the middle of starting leaves no process`, async () => {
      const started = start(flagsFor(await freePorts(2)));
      let pids: number[] = [];
      for (const end = Date.now() + READY_MS; pids.length < 3 && Date.now() < end; await sleep(20)) {
        pids = descendants(started.child.pid!);
      }
      started.child.kill(signal);
      assert.equal(await started.exited, 0, started.output());
      await assertAllGone(pids);
    });
  }
});

describe("start refuses in one line", () => {
  async function refusal(flags: string[], env: NodeJS.ProcessEnv = {}): Promise<string> {
    const { exited, output } = start(flags, env);
    assert.notEqual(await exited, 0);
    const lines = output().trimEnd().split("\n");
    assert.equal(lines.length, 1, output());
    return lines[0];
  }

  test("a taken port, of the edge or of a node", async () => {
    const [port, other] = await freePorts(2);
    const model = mkdtempSync(join(tmpdir(), "edgewise-model-"));
    for (const name of ["config.json", "tokenizer.json", "model.safetensors"])
      writeFileSync(join(model, name), "{}");
    const holder = createServer().listen(port, "127.0.0.1");
    const flags = (edge: number, node: number) => [
      "--model",
      model,
      "--port",
      `${edge}`,
      "--node-port",
      `${node}`,
    ];
    assert.match(await refusal(flags(port, other)), /port \d+ is taken; choose another with --port/);
    assert.match(await refusal(flags(other, port)), /port \d+ is taken; choose another with --node-port/);
    assert.match(await refusal(flags(other, other)), /both the edge's and a node's/);
    holder.close();
    rmSync(model, { recursive: true });
  });

  test("a model folder that is not one", async () => {
    assert.match(await refusal(["--model", "/no/such/folder"]), /is not a model folder: it does not exist/);
    assert.match(
      await refusal(["--model", join(ROOT, "package.json")]),
      /is not a model folder: it is a file/,
    );
    assert.match(
      await refusal(["--model", join(ROOT, "test")]),
      /is not a model folder: it has no config.json/,
    );
  });

  test("a missing addon, and the packages that are missing to build it", async () => {
    const { checkAddon } = await import("../../gpu-node/local/checks.ts");
    checkAddon("/some/edgewise.node");
    assert.throws(() => checkAddon(undefined, "/none"), /run: apt-get install g\+\+ cmake && npm run build/);
    assert.throws(() => checkAddon(undefined, process.env.PATH), /not built; run: .*npm run build/);
  });

  test("an unknown flag, with the nearest known one", async () => {
    assert.match(await refusal(["--prot", "1"]), /unknown flag --prot; did you mean --port\?/);
  });
});
