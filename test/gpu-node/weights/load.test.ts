import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { DryStep, dryMemory } from "../../../gpu-node/model/dry.ts";
import { loadModel } from "../../../gpu-node/model/load-model.ts";
import { CheckpointError, type CheckpointErrorCode } from "../../../gpu-node/weights/errors.ts";
import { type Recipe, type Stored, writeCheckpoint } from "../model/random-checkpoint.ts";
import { RECIPES } from "../model/recipes.ts";
import { mapInMemory } from "./mapped.ts";

const root = mkdtempSync(join(tmpdir(), "edgewise-load-"));
after(() => rmSync(root, { recursive: true }));

const recipe = (start: string): Recipe => {
  const found = Object.entries(RECIPES).find(([name]) => name.startsWith(start));
  assert.ok(found, start);
  return found[1];
};
const LLAMA = recipe("llama without head_dim");
const FP8 = recipe("deepseek-v3 in fp8");
const INT4 = recipe("kimi-k2.5");

let made = 0;
/** Writes the recipe and loads it on a device without memory. */
function load(
  from: Recipe,
  options: { alter?: Recipe["alter"]; onProgress?: (done: number, total: number) => void } = {},
) {
  const dir = join(root, String(made++));
  writeCheckpoint(dir, { ...from, alter: options.alter ?? from.alter });
  return open(dir, options.onProgress);
}

function open(dir: string, onProgress?: (done: number, total: number) => void) {
  const memory = { ...dryMemory, ops: new DryStep().ops, temp: dryMemory.alloc };
  return loadModel(dir, memory, { activations: "bf16", kvFormat: "bf16", mapFile: mapInMemory, onProgress });
}

function refused(body: () => unknown, code: CheckpointErrorCode, ...messages: RegExp[]): void {
  assert.throws(body, (error) => {
    assert.ok(error instanceof CheckpointError, String(error));
    assert.equal(error.code, code, error.message);
    for (const message of messages) assert.match(error.message, message);
    return true;
  });
}

const bf16 = (...shape: number[]): Stored => ({
  dtype: "BF16",
  shape,
  bytes: new Uint8Array(2 * shape.reduce((a, b) => a * b, 1)),
});

test("one error names every missing, misshapen and unexpected tensor", () => {
  const alter = (files: Map<string, Stored>) => {
    files.delete("model.layers.0.self_attn.q_proj.weight");
    files.delete("model.norm.weight");
    files.set("model.layers.1.mlp.up_proj.weight", bf16(8, 8));
    files.set("model.layers.1.input_layernorm.weight", {
      dtype: "I32",
      shape: [80],
      bytes: new Uint8Array(320),
    });
    files.set("model.layers.2.self_attn.q_proj.bias", bf16(80));
    files.set("odd.weight", bf16(1));
  };
  refused(
    () => load(LLAMA, { alter }),
    "wrong_tensors",
    /missing tensor model\.layers\.0\.self_attn\.q_proj\.weight/,
    /missing tensor model\.norm\.weight/,
    /model\.layers\.1\.mlp\.up_proj\.weight: shape \[8, 8\].*\[56, 80\]/,
    /model\.layers\.1\.input_layernorm\.weight: dtype I32/,
    /unexpected tensor model\.layers\.2\.self_attn\.q_proj\.bias/,
    /unexpected tensor odd\.weight/,
  );
});

test("a config with absurd counts ends in an error that stops listing", () => {
  const dir = join(root, String(made++));
  writeCheckpoint(dir, FP8);
  const absurd = {
    num_hidden_layers: 1024,
    n_routed_experts: 4095,
    hidden_size: 1 << 20,
    vocab_size: 1 << 24,
  };
  writeFileSync(join(dir, "config.json"), JSON.stringify({ ...FP8.config, ...absurd }));
  refused(
    () => open(dir),
    "wrong_tensors",
    /missing tensor .*stopped looking/s,
    /embed_tokens\.weight: shape/,
  );
});

test("rotary frequencies and the draft layer behind the last one may be there", () => {
  load(FP8, {
    alter(files) {
      files.set("model.layers.0.self_attn.rotary_emb.inv_freq", bf16(8));
      files.set("model.layers.2.eh_proj.weight", bf16(4, 8));
      files.set("model.layers.2.self_attn.q_a_proj.weight", bf16(4, 8));
    },
  });
});

test("FP8 that config.json does not mention is read as FP8", () => {
  const { quantization_config, ...config } = FP8.config;
  assert.ok(quantization_config);
  const block = { blockN: 128, blockK: 128 };
  const quantized = { kind: "fp8" as const, match: /mlp\.experts/, ...block };
  load({ ...FP8, config, quantized });
});

test("an FP8 layer without its scales names them; other kinds of scales are refused", () => {
  const name = "model.layers.1.mlp.shared_experts.up_proj";
  const drop = (files: Map<string, Stored>) => files.delete(`${name}.weight_scale_inv`);
  refused(
    () => load(FP8, { alter: drop }),
    "wrong_tensors",
    /missing tensor .*shared_experts.up_proj.weight_scale_inv/,
  );
  const perChannel = (files: Map<string, Stored>) => {
    drop(files);
    files.set(`${name}.weight_scale`, bf16(48, 1));
  };
  refused(() => load(FP8, { alter: perChannel }), "wrong_tensors", /up_proj.weight_scale: .*not supported/);
});

test("INT4 with activation-ordered groups, a wrong shape or uneven groups is refused by name", () => {
  const layer = "language_model.model.layers.1.mlp.experts.3.up_proj";
  const alter = (name: string, stored: Stored) => (files: Map<string, Stored>) =>
    files.set(`${layer}.${name}`, stored);
  refused(
    () => load(INT4, { alter: alter("weight_g_idx", bf16(96)) }),
    "wrong_tensors",
    /experts\.3\.up_proj\.weight_g_idx: /,
  );
  refused(
    () => load(INT4, { alter: alter("weight_scale", bf16(48, 5)) }),
    "wrong_tensors",
    /weight_scale: .*96 columns/,
  );
  const shape = { dtype: "I64", shape: [2], bytes: new Uint8Array(BigInt64Array.of(48n, 95n).buffer) };
  refused(
    () => load(INT4, { alter: alter("weight_shape", shape) }),
    "wrong_tensors",
    /weight_shape: says \[48, 95\]/,
  );
});

test("experts of one layer that are stored differently are refused by name", () => {
  const layer = "language_model.model.layers.1.mlp.experts.3.up_proj";
  const alter = (files: Map<string, Stored>) => {
    for (const part of ["packed", "scale", "shape", "zero_point"]) files.delete(`${layer}.weight_${part}`);
    files.set(`${layer}.weight`, bf16(48, 96));
  };
  refused(() => load(INT4, { alter }), "wrong_tensors", /experts\.3\.up_proj: stored as bf16, but .*int4/);
});

test("an index that disagrees with its shards is refused by name", () => {
  const dir = join(root, String(made++));
  writeCheckpoint(dir, LLAMA);
  const path = join(dir, "model.safetensors.index.json");
  const index = JSON.parse(readFileSync(path, "utf8"));
  const change = (weight_map: object) => writeFileSync(path, JSON.stringify({ weight_map }));
  open(dir);
  change({ ...index.weight_map, "odd.weight": "model-00001-of-00003.safetensors" });
  refused(() => open(dir), "bad_index", /odd\.weight \(in model-00001-of-00003\.safetensors\)/);
  change({ ...index.weight_map, "odd.weight": "model-00009-of-00009.safetensors" });
  refused(() => open(dir), "not_a_checkpoint", /missing model-00009-of-00009\.safetensors/);
  for (const shard of ["../model.safetensors", "/etc/passwd", "a/b.safetensors", 5, null]) {
    change({ "odd.weight": shard });
    refused(() => open(dir), "bad_index", /odd\.weight.*is not a shard name/);
  }
  writeFileSync(path, '{"weight_map":{"a":"x.safetensors","a":"y.safetensors"}}');
  refused(() => open(dir), "bad_index", /"a" appears twice/);
});

test("a folder that is not a checkpoint says what it lacks", () => {
  refused(() => open(join(root, "nowhere")), "not_a_checkpoint", /no config\.json/);
  const dir = join(root, String(made++));
  writeCheckpoint(dir, { ...LLAMA, shards: 1 });
  rmSync(join(dir, "model.safetensors"));
  refused(
    () => open(dir),
    "not_a_checkpoint",
    /neither model\.safetensors nor model\.safetensors\.index\.json/,
  );
});

test("progress rises to the bytes of all tensors that the model uses", () => {
  const seen: [number, number][] = [];
  load(FP8, { onProgress: (done, total) => seen.push([done, total]) });
  assert.ok(seen.every(([done], i) => i === 0 || done > seen[i - 1][0]));
  const [done, total] = seen.at(-1) ?? [0, 1];
  assert.equal(done, total);
});
