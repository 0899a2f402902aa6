// Every family and weight format against the float64 oracle, through the loader, the ops and the paged cache.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { loadModel } from "../../../gpu-node/model/load-model.ts";
import { openDevice } from "../../../gpu-node/native/device.ts";
import { loadAddon } from "../../../gpu-node/native/load.ts";
import { Driver } from "./driver.ts";
import { oracleLogits } from "./oracle.ts";
import { modelConfig, randomOf, writeCheckpoint } from "./random-checkpoint.ts";
import { RECIPES } from "./recipes.ts";

const root = mkdtempSync(join(tmpdir(), "edgewise-families-"));
after(() => rmSync(root, { recursive: true }));

const TOKENS = 70; // more than one page
const { mapFile } = loadAddon();

function largestDifference(ours: Float32Array, want: Float64Array[]): number {
  const vocab = want[0].length;
  return want.reduce(
    (worst, row, t) => row.reduce((w, value, i) => Math.max(w, Math.abs(value - ours[t * vocab + i])), worst),
    0,
  );
}

for (const [name, recipe] of Object.entries(RECIPES)) {
  test(`${name}: float32 logits are the oracle's, whatever the chunk and the backend`, () => {
    const dir = join(root, `seed-${recipe.seed}`);
    const values = writeCheckpoint(dir, recipe);
    const random = randomOf(recipe.seed + 1000);
    const vocab = modelConfig(recipe.config).vocab_size as number;
    const tokens = Array.from({ length: TOKENS }, () => Math.floor(random() * vocab));
    const want = oracleLogits(recipe.config, values, tokens);
    for (const backend of ["reference", "cpu"] as const) {
      const device = openDevice({ backend, threads: 2 });
      try {
        const model = loadModel(dir, device, { activations: "f32", kvFormat: "f32", mapFile });
        const driver = new Driver(device, model);
        for (const [slot, chunk] of [1, 7, 64, TOKENS].entries()) {
          const difference = largestDifference(driver.sequence(slot, tokens, chunk), want);
          assert.ok(difference <= 2e-5, `${backend}, chunk ${chunk}: max_abs ${difference}`);
        }
      } finally {
        device.dispose();
      }
    }
  });
}
