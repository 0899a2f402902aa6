// The oracle itself against transformers (test/fixtures/make_golden.py).
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { readGolden } from "../../../gpu-node/eval/golden.ts";
import { readSafetensorsHeader } from "../../../gpu-node/weights/safetensors.ts";
import { decodeBf16 } from "../../ops/formats.ts";
import { oracleLogits } from "./oracle.ts";
import type { Values } from "./random-checkpoint.ts";

const FIXTURES = new URL("../../fixtures/golden/", import.meta.url).pathname;

function readValues(path: string): Values {
  const bytes = new Uint8Array(readFileSync(path));
  const source = { bytes: bytes.length, read: (begin: number, end: number) => bytes.slice(begin, end) };
  const read = (dtype: string, buffer: ArrayBuffer) =>
    dtype === "F32"
      ? Float64Array.from(new Float32Array(buffer))
      : Float64Array.from(new Uint16Array(buffer), decodeBf16);
  return new Map(
    readSafetensorsHeader(source, path).map(({ name, dtype, begin, end }) => [
      name,
      read(dtype, bytes.slice(begin, end).buffer),
    ]),
  );
}

for (const name of readdirSync(FIXTURES)) {
  test(`the oracle agrees with transformers: ${name}`, () => {
    const dir = join(FIXTURES, name);
    const config = JSON.parse(readFileSync(join(dir, "config.json"), "utf8"));
    const golden = readGolden(join(dir, "golden.safetensors"));
    const logits = oracleLogits(config, readValues(join(dir, "model.safetensors")), [...golden.tokens]);
    const worst = logits.reduce(
      (w, row, t) =>
        row.reduce((v, logit, i) => Math.max(v, Math.abs(logit - golden.logits[t * golden.vocab + i])), w),
      0,
    );
    assert.ok(worst <= 1e-5, `max_abs ${worst}`);
  });
}
