// A checkpoint folder -> a model on a device.
import { type KvFormat, kvBytesPerToken, PAGE_TOKENS } from "../kv/format.ts";
import type { Device, Tensor } from "../native/addon.ts";
import { type Checkpoint, type MapFile, openCheckpoint } from "../weights/checkpoint.ts";
import { WeightLoader, type WeightMemory } from "../weights/load.ts";
import { readModelSpec } from "./config.ts";
import { type Activations, StepContext, type StepDevice } from "./context.ts";
import { Decoder } from "./decoder.ts";
import { DryStep, dryMemory, shapeTensor } from "./dry.ts";
import { allocateKv, kvGeometry, type LayerKv } from "./kv.ts";
import type { ModelSpec } from "./spec.ts";
import type { StepBatch } from "./step.ts";

export interface ModelOptions {
  activations: Activations;
  kvFormat: KvFormat;
  /** A row's bits must not depend on the rest of the batch (`--deterministic`). */
  deterministic?: boolean;
  mapFile: MapFile;
  /** Called while loading with bytes done and in all. */
  onProgress?: (done: number, total: number) => void;
}

export interface Model {
  readonly spec: ModelSpec;
  readonly activations: Activations;
  readonly kvFormat: KvFormat;
  /** Bytes of one page over all layers, scales included. */
  readonly kvBytesPerPage: number;
  /** Per layer, after allocKv. */
  readonly kv: readonly LayerKv[];
  /** Allocates the KV pools, once, before the first step. Page 0 is the null page. */
  allocKv(pages: number): void;
  /** Enqueues a step. Returns its logits, f32 [S, vocab], in the device's current arena. */
  forward(batch: StepBatch): Tensor;
  /** Bytes of arena that `forward` takes for a step of this size. */
  arenaBytes(size: { tokens: number; rows: number; samples: number }): number;
}

/**
 * Loads the checkpoint in `dir`. Everything is checked before a weight is read: throws CheckpointError for a config
 * that is wrong or not supported, a damaged file, and missing or unexpected tensors, each named.
 */
export function loadModel(
  dir: string,
  device: WeightMemory & StepDevice & Pick<Device, "alloc">,
  options: ModelOptions,
): Model {
  const spec = readModelSpec(dir);
  const checkpoint = openCheckpoint(dir, options.mapFile);
  try {
    return new LoadedModel(spec, device, options, loadDecoder(spec, checkpoint, device, options));
  } finally {
    checkpoint.close();
  }
}

function loadDecoder(
  spec: ModelSpec,
  checkpoint: Checkpoint,
  memory: WeightMemory,
  options: ModelOptions,
): Decoder {
  const { activations } = options;
  const common = { prefix: spec.weightPrefix, block: spec.quantization.block };
  const checker = new WeightLoader(checkpoint, dryMemory, { ...common, check: true });
  new Decoder(checker, spec, activations);
  checker.finish(spec.ignoredTensors);
  const onProgress = (bytes: number) => options.onProgress?.(bytes, checker.bytes);
  return new Decoder(
    new WeightLoader(checkpoint, memory, { ...common, check: false, onProgress }),
    spec,
    activations,
  );
}

class LoadedModel implements Model {
  readonly spec: ModelSpec;
  readonly activations: Activations;
  readonly kvFormat: KvFormat;
  readonly kvBytesPerPage: number;
  kv: LayerKv[] = [];
  readonly #device: StepDevice & Pick<Device, "alloc">;
  readonly #decoder: Decoder;
  readonly #deterministic: boolean;

  constructor(
    spec: ModelSpec,
    device: StepDevice & Pick<Device, "alloc">,
    options: ModelOptions,
    decoder: Decoder,
  ) {
    this.spec = spec;
    this.activations = options.activations;
    this.kvFormat = options.kvFormat;
    const perToken = kvBytesPerToken(options.kvFormat, kvGeometry(spec.attention));
    this.kvBytesPerPage = spec.layers.length * PAGE_TOKENS * perToken;
    this.#device = device;
    this.#decoder = decoder;
    this.#deterministic = options.deterministic ?? false;
  }

  allocKv(pages: number): void {
    if (this.kv.length) throw new Error("the KV cache is allocated already");
    this.kv = this.#allocate(this.#device, pages);
  }

  forward(batch: StepBatch): Tensor {
    const step = new StepContext(this.#device, this.activations, this.#deterministic);
    return this.#decoder.forward(step, batch, this.kv);
  }

  arenaBytes({ tokens, rows, samples }: { tokens: number; rows: number; samples: number }): number {
    // Both forms of MLA, at either end of the context length, so that the larger one counts.
    const sizes = [1, 2 ** 20].map((maxKvLen) => {
      const dry = new DryStep();
      const batch = dryBatch(tokens, rows, samples, maxKvLen);
      const kv = this.#allocate({ alloc: shapeTensor }, 2);
      this.#decoder.forward(new StepContext(dry, this.activations, this.#deterministic), batch, kv);
      return dry.bytes;
    });
    return Math.max(...sizes);
  }

  #allocate(device: Pick<Device, "alloc">, pages: number): LayerKv[] {
    return allocateKv(device, kvGeometry(this.spec.attention), this.kvFormat, pages, this.#decoder.kvScales);
  }
}

function dryBatch(tokens: number, rows: number, samples: number, maxKvLen: number): StepBatch {
  const i32 = (...shape: number[]) => shapeTensor("i32", shape);
  return {
    tokens,
    rows,
    samples,
    tokenIds: i32(tokens),
    positions: i32(tokens),
    writeSlots: i32(tokens),
    rowStart: i32(rows + 1),
    kvLen: i32(rows),
    rowSlot: i32(rows),
    pageTable: i32(rows, 1),
    logitRows: i32(samples),
    maxKvLen,
    maxNewTokens: tokens,
  };
}
