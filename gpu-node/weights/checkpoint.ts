// A checkpoint folder: one model.safetensors, or shards listed by model.safetensors.index.json.
import { existsSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import type { MappedFile } from "../native/addon.ts";
import { CheckpointError } from "./errors.ts";
import { isObject, parseStrictJson } from "./json.ts";
import { readSafetensorsHeader, type TensorEntry } from "./safetensors.ts";

export type MapFile = (path: string) => MappedFile;

export interface StoredTensor extends TensorEntry {
  file: MappedFile;
}

/** All tensors of a checkpoint by name; the files stay mapped while a tensor made of them lives. */
export interface Checkpoint {
  dir: string;
  tensors: Map<string, StoredTensor>;
  close(): void;
}

const SINGLE = "model.safetensors";
const INDEX = "model.safetensors.index.json";
const MAX_INDEX_BYTES = 256 * 1024 * 1024;

/** Maps every shard of `dir` and checks headers and index. Throws CheckpointError naming what is missing. */
export function openCheckpoint(dir: string, mapFile: MapFile): Checkpoint {
  const index = existsSync(join(dir, SINGLE)) ? null : readIndex(dir);
  const shards = index ? [...new Set(index.values())].sort() : [SINGLE];
  const absent = shards.filter((shard) => !existsSync(join(dir, shard)));
  if (absent.length) throw new CheckpointError("not_a_checkpoint", dir, `missing ${absent.join(", ")}`);

  const files: MappedFile[] = [];
  const close = () => {
    for (const file of files) file.close();
  };
  try {
    const tensors = new Map<string, StoredTensor>();
    const shardOf = new Map<string, string>();
    for (const shard of shards) {
      const file = mapFile(join(dir, shard));
      files.push(file);
      for (const entry of readSafetensorsHeader(file, join(dir, shard))) {
        const other = shardOf.get(entry.name);
        if (other)
          throw new CheckpointError("duplicate_tensor", dir, `${entry.name} is in ${other} and in ${shard}`);
        shardOf.set(entry.name, shard);
        tensors.set(entry.name, { ...entry, file });
      }
    }
    const misplaced = [...(index ?? [])].filter(([name, shard]) => shardOf.get(name) !== shard);
    if (misplaced.length) {
      const list = misplaced.map(([name, shard]) => `${name} (in ${shard})`).join(", ");
      throw new CheckpointError(
        "bad_index",
        join(dir, INDEX),
        `lists tensors that their shards lack: ${list}`,
      );
    }
    return { dir, tensors, close };
  } catch (error) {
    close();
    throw error;
  }
}

/** weight_map of the index: tensor name -> file name. */
function readIndex(dir: string): Map<string, string> {
  const path = join(dir, INDEX);
  if (!existsSync(path)) {
    throw new CheckpointError("not_a_checkpoint", dir, `has neither ${SINGLE} nor ${INDEX}`);
  }
  if (statSync(path).size > MAX_INDEX_BYTES) {
    throw new CheckpointError("bad_index", path, `is larger than ${MAX_INDEX_BYTES} bytes`);
  }
  let value: unknown;
  try {
    value = parseStrictJson(readFileSync(path, "utf8"));
  } catch (error) {
    throw new CheckpointError("bad_index", path, error instanceof Error ? error.message : String(error));
  }
  const map = isObject(value) ? value.weight_map : undefined;
  if (!isObject(map)) throw new CheckpointError("bad_index", path, "weight_map is not an object");
  const index = new Map<string, string>();
  for (const [name, shard] of Object.entries(map)) {
    // A shard is a file beside the index: a path could leave the folder.
    if (typeof shard !== "string" || !/^[\w.-]+\.safetensors$/.test(shard)) {
      throw new CheckpointError(
        "bad_index",
        path,
        `weight_map: ${name}: ${JSON.stringify(shard)} is not a shard name`,
      );
    }
    index.set(name, shard);
  }
  return index;
}
