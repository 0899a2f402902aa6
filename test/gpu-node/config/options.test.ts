import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { run, verbs } from "../../../gpu-node/cli.ts";
import { loadOptions, serveOptions } from "../../../gpu-node/config.ts";
import { flagOf, helpText, UsageError } from "../../../gpu-node/options.ts";

const dir = mkdtempSync(join(tmpdir(), "edgewise-"));
after(() => rmSync(dir, { recursive: true }));

function load(toml: string, ...flags: string[]) {
  const file = join(dir, "edgewise.toml");
  writeFileSync(file, toml);
  return loadOptions(serveOptions, ["--config", file, ...flags]);
}

const refused = (toml: string, flags: string[], message: RegExp) =>
  assert.throws(
    () => load(toml, ...flags),
    (error) => error instanceof UsageError && message.test(error.message),
  );

test("flags win over the file, the file over defaults", () => {
  const options = load('model = "/m"\nport = 9\ndrain_seconds = 2', "--port", "10");
  assert.deepEqual(
    [options.model, options.port, options.drain_seconds, options.host],
    ["/m", 10, 2, "127.0.0.1"],
  );
});

test("every key is a flag and stands in the help", () => {
  const help = helpText(serveOptions);
  for (const key of Object.keys(serveOptions)) assert.ok(help.includes(flagOf(key)), key);
});

test("every key stands in the README", () => {
  const readme = readFileSync(new URL("../../../README.md", import.meta.url), "utf8");
  for (const key of Object.keys(serveOptions)) assert.ok(readme.includes(`\`${key}\``), key);
});

test("booleans take --flag, --no-flag and --flag=false", () => {
  assert.equal(load("", "--no-prefix-cache").prefix_cache, false);
  assert.equal(load("", "--prefix-cache=false").prefix_cache, false);
  assert.equal(load("prefix_cache = false", "--prefix-cache").prefix_cache, true);
});

test("an unknown key or flag is an error that suggests the right one", () => {
  refused("prot = 1", [], /unknown key prot; did you mean port\?/);
  refused("", ["--drain-second", "1"], /unknown flag --drain-second; did you mean --drain-seconds\?/);
  refused("", ["--control-tokens", "refuze"], /must be one of refuse, text; did you mean refuse\?/);
  refused("", ["model"], /unexpected argument model/);
  refused("__proto__ = 1", [], /unknown key __proto__/);
});

test("wrong types, missing values and broken files are one line", () => {
  refused('port = "80"', [], /edgewise.toml: port must be a number/);
  refused("", ["--port", "eighty"], /--port must be a number/);
  refused("", ["--port", ""], /--port must be a number/);
  refused("", ["--port", "70000"], /--port must be at most 65535/);
  refused("", ["--port"], /--port needs a value/);
  refused("", ["--model", "--port", "1"], /--model needs a value/);
  refused("", ["--no-prefix-cache=false"], /--no-prefix-cache takes no value/);
  refused("port = ", [], /edgewise.toml:1: /);
  refused("", ["--config", "/does/not/exist"], /cannot read .*ENOENT/);
});

test("an unknown verb exits with 2 and a suggestion", async (context) => {
  const error = context.mock.method(console, "error", () => {});
  assert.equal(await run(["sevre"]), 2);
  assert.match(String(error.mock.calls[0].arguments[0]), /unknown verb sevre; did you mean serve\?/);
});

test("every verb answers --help with its own name", async (context) => {
  const log = context.mock.method(console, "log", () => {});
  for (const verb of Object.keys(verbs)) {
    log.mock.resetCalls();
    assert.equal(await run([verb, "--help"]), 0, verb);
    assert.match(String(log.mock.calls[0]?.arguments[0]), new RegExp(`edgewise ${verb}\\b`), verb);
  }
});
