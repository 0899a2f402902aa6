// What is stored in the KV cache is what later steps compute with.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { KV_FORMATS, type KvFormat } from "../../../gpu-node/kv/format.ts";
import { loadModel, type Model } from "../../../gpu-node/model/load-model.ts";
import { type OpDevice, openDevice } from "../../../gpu-node/native/device.ts";
import { loadAddon } from "../../../gpu-node/native/load.ts";
import { Driver } from "./driver.ts";
import { type Recipe, writeCheckpoint } from "./random-checkpoint.ts";
import { RECIPES } from "./recipes.ts";

const root = mkdtempSync(join(tmpdir(), "edgewise-kv-"));
after(() => rmSync(root, { recursive: true }));

// All layers dense: among random experts a rounding may flip the choice, and the answer with it.
const dense = (recipe: Recipe): Recipe => ({
  ...recipe,
  config: { ...recipe.config, first_k_dense_replace: 99 },
});
const FAMILIES = {
  gqa: dense(RECIPES["glm4-moe, quarter rotary, two shared experts, yarn"]),
  mla: dense(RECIPES["deepseek-v3 in fp8 blocks cut off at the edge, groups, mscale"]),
};
for (const [name, recipe] of Object.entries(FAMILIES)) writeCheckpoint(join(root, name), recipe);

const TOKENS = Array.from({ length: 30 }, (_, i) => (i * 29 + 3) % 131);
const { mapFile } = loadAddon();

function withModel<T>(family: string, kvFormat: KvFormat, body: (model: Model, device: OpDevice) => T): T {
  const device = openDevice({ backend: "cpu", threads: 2 });
  try {
    return body(loadModel(join(root, family), device, { activations: "f32", kvFormat, mapFile }), device);
  } finally {
    device.dispose();
  }
}

function largest(a: Float32Array, b: Float32Array): number {
  return a.reduce((worst, value, i) => Math.max(worst, Math.abs(value - b[i])), 0);
}

for (const family of Object.keys(FAMILIES)) {
  test(`${family}: every format answers like float32, the narrower ones less exactly`, () => {
    const exact = withModel(family, "f32", (model, device) =>
      new Driver(device, model).sequence(0, TOKENS, 1),
    );
    const spread = exact.reduce((a, b) => Math.max(a, Math.abs(b)), 0);
    const errors = KV_FORMATS.map((format) =>
      withModel(family, format, (model, device) =>
        largest(exact, new Driver(device, model).sequence(0, TOKENS, 1)),
      ),
    );
    const [f32, bf16, fp8, fp8Token] = errors.map((error) => error / spread);
    assert.equal(f32, 0);
    assert.ok(bf16 > 0 && bf16 < 0.02, `bf16 ${bf16}`);
    assert.ok(fp8 > bf16 && fp8 < 0.2, `fp8 ${fp8}`);
    assert.ok(fp8Token > bf16 && fp8Token < 0.2, `fp8-token ${fp8Token}`);
  });

  test(`${family}: a changed per-token scale in the cache changes what later tokens see`, () => {
    withModel(family, "fp8-token", (model, device) => {
      const driver = new Driver(device, model);
      const next = { slot: 0, tokens: TOKENS.slice(20), past: 20 };
      driver.step([{ slot: 0, tokens: TOKENS.slice(0, 20), past: 0 }]);
      const before = driver.step([next]);
      assert.deepEqual(driver.step([next]), before, "a repeated step gives the same bits");
      const scales = model.kv[0].tokenScales;
      assert.ok(scales);
      device.upload(
        scales,
        new Float32Array(device.read(scales)).map((scale) => scale * 1.5),
      );
      assert.notDeepEqual(driver.step([next]), before);
    });
  });

  test(`${family}: rows of one step do not see each other, and pages may lie anywhere`, () => {
    withModel(family, "f32", (model, device) => {
      const driver = new Driver(device, model);
      const other = TOKENS.map((token) => (token + 1) % 131);
      const alone = [driver.sequence(0, TOKENS, TOKENS.length), driver.sequence(1, other, other.length)];
      driver.step([
        { slot: 2, tokens: TOKENS.slice(0, 11), past: 0 },
        { slot: 3, tokens: other.slice(0, 29), past: 0 },
      ]);
      const both = driver.step([
        { slot: 3, tokens: other.slice(29), past: 29 },
        { slot: 2, tokens: TOKENS.slice(11), past: 11 },
      ]);
      const want = [...alone[1].slice(29 * 131), ...alone[0].slice(11 * 131)];
      assert.ok(largest(both, Float32Array.from(want)) <= 2e-5);
    });
  });
}
