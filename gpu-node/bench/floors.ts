// What a step can't be faster than: the bytes it has to read at the speed that this machine reads, the operations it
// has to do at the speed that this machine multiplies.
import type { Model } from "../model/load-model.ts";
import type { MoeSpec } from "../model/spec.ts";
import type { DType } from "../native/addon.ts";
import type { OpDevice } from "../native/device.ts";
import { type MapFile, openCheckpoint } from "../weights/checkpoint.ts";

/** Bytes and parameters of a checkpoint by how a step uses them. */
export interface WeightSizes {
  /** Read once per step whatever the batch; without the embedding, of which a step reads a few rows. */
  dense: number;
  /** All routed experts. */
  experts: number;
  denseElements: number;
  expertElements: number;
  expertShare: number;
  expertCount: number;
}

const EXPERT = /\.experts\.\d+\./;
const BYTES: Record<string, number> = { F32: 4, BF16: 2, F16: 2, F8_E4M3: 1, I32: 4, U8: 1, I8: 1 };

/** Of the checkpoint as it is stored: what the backend keeps may be larger. */
export function weightSizes(model: Model, dir: string, mapFile: MapFile): WeightSizes {
  const moe = model.spec.layers.find((layer): layer is MoeSpec => layer.kind === "moe");
  const sizes = { dense: 0, experts: 0, denseElements: 0, expertElements: 0 };
  const checkpoint = openCheckpoint(dir, mapFile);
  for (const [name, tensor] of checkpoint.tensors) {
    if (model.spec.ignoredTensors(name)) continue;
    if (name.endsWith("embed_tokens.weight") && !model.spec.tiedEmbeddings) continue;
    const stored = tensor.shape.reduce((a, b) => a * b, 1);
    // Packed int4: eight values per int32.
    const elements = name.endsWith("weight_packed") ? 8 * stored : name.includes("scale") ? 0 : stored;
    const bytes = stored * (BYTES[tensor.dtype.toUpperCase()] ?? 1);
    if (EXPERT.test(name)) {
      sizes.experts += bytes;
      sizes.expertElements += elements;
    } else {
      sizes.dense += bytes;
      sizes.denseElements += elements;
    }
  }
  checkpoint.close();
  return { ...sizes, expertCount: moe?.experts ?? 1, expertShare: moe ? moe.perToken / moe.experts : 0 };
}

/** Bytes that a decode step of `batch` rows with `context` tokens each reads, experts chosen at random. */
export function decodeBytes(model: Model, sizes: WeightSizes, batch: number, context: number): number {
  const touched = 1 - (1 - sizes.expertShare) ** batch;
  return sizes.dense + touched * sizes.experts + (batch * context * model.kvBytesPerPage) / 64;
}

/** Floating-point operations of the linear layers for one token; attention comes on top. */
export function linearOperations(sizes: WeightSizes): number {
  return 2 * (sizes.denseElements + sizes.expertShare * sizes.expertElements);
}

/** Bytes per second of `add` (a += b: two reads, one write) over tensors of `bytes` in all; best of `runs`. */
export function streamBandwidth(device: OpDevice, bytes: number, runs: number): number {
  const columns = 4096;
  const rows = Math.max(1, Math.round(bytes / 2 / 4 / columns));
  const [a, b] = [0, 1].map(() => device.alloc("f32", [rows, columns]));
  const seconds = best(runs, () => {
    device.ops.add({ a, b });
    device.sync();
  });
  return (3 * 4 * rows * columns) / seconds;
}

/** Operations per second of a dense product [m, k] x [n, k]; best of `runs`. */
export function linearRate(device: OpDevice, dtype: DType, runs: number): number {
  const [m, n, k] = [512, 1024, 1024];
  const x = device.alloc(dtype, [m, k]);
  const w = device.alloc("bf16", [n, k]);
  const out = device.alloc(dtype, [m, n]);
  const seconds = best(runs, () => {
    device.ops.linear({ x, w, bias: null, out });
    device.sync();
  });
  return (2 * m * n * k) / seconds;
}

function best(runs: number, body: () => void): number {
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i <= runs; i++) {
    const started = performance.now();
    body();
    if (i > 0) least = Math.min(least, performance.now() - started);
  }
  return least / 1000;
}
