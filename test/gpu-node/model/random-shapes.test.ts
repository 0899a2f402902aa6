// Random families, shapes and formats against the oracle. EDGEWISE_SEEDS=first-last runs others than the usual few.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { compareLogits } from "../../../gpu-node/eval/metrics.ts";
import { loadModel } from "../../../gpu-node/model/load-model.ts";
import { openDevice } from "../../../gpu-node/native/device.ts";
import { loadAddon } from "../../../gpu-node/native/load.ts";
import { Driver } from "./driver.ts";
import { oracleLogits } from "./oracle.ts";
import { randomOf, writeCheckpoint } from "./random-checkpoint.ts";
import { randomRecipe } from "./random-recipe.ts";

const root = mkdtempSync(join(tmpdir(), "edgewise-shapes-"));
after(() => rmSync(root, { recursive: true }));

const [first, last] = (process.env.EDGEWISE_SEEDS ?? "0-9").split("-").map(Number);
const { mapFile } = loadAddon();

for (let seed = first; seed <= last; seed++) {
  const recipe = randomRecipe(seed);
  test(`seed ${seed} (${recipe.config.model_type}): float32 reaches the oracle, bfloat16 stays near`, () => {
    const dir = join(root, String(seed));
    const values = writeCheckpoint(dir, recipe);
    const random = randomOf(~seed);
    const vocab = recipe.config.vocab_size as number;
    const tokens = Array.from({ length: 20 + Math.floor(random() * 60) }, () => Math.floor(random() * vocab));
    const chunk = 1 + Math.floor(random() * tokens.length);
    // Rounding may flip the choice among experts, which changes a token's answer and those behind it.
    const bf16Bound = [...values.keys()].every((name) => !name.includes(".experts.")) ? 1.5e-4 : 1e-2;
    const want = Float32Array.from(oracleLogits(recipe.config, values, tokens).flatMap((row) => [...row]));
    for (const backend of ["reference", "cpu"] as const) {
      for (const precision of ["f32", "bf16"] as const) {
        const device = openDevice({ backend, threads: 2 });
        try {
          const model = loadModel(dir, device, { activations: precision, kvFormat: precision, mapFile });
          const metrics = compareLogits(want, new Driver(device, model).sequence(0, tokens, chunk), vocab);
          const where = `${backend} ${precision}, ${tokens.length} tokens in chunks of ${chunk}`;
          if (precision === "f32") assert.ok(metrics.max_abs <= 2e-5, `${where}: max_abs ${metrics.max_abs}`);
          else assert.ok(metrics.median_kl <= bf16Bound, `${where}: median_kl ${metrics.median_kl}`);
        } finally {
          device.dispose();
        }
      }
    }
  });
}
