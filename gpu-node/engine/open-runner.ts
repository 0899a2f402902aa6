// From plain options, which can travel to a thread, to a runner.
import type { KvFormat } from "../kv/format.ts";
import { PAGE_TOKENS } from "../kv/format.ts";
import type { IntegrityMode } from "../kv/tags.ts";
import type { Activations } from "../model/context.ts";
import { loadModel } from "../model/load-model.ts";
import type { BackendName } from "../native/addon.ts";
import { openDevice } from "../native/device.ts";
import { loadAddon } from "../native/load.ts";
import { ModelRunner } from "./model-runner.ts";
import type { Runner } from "./runner.ts";
import { type SimOptions, SimRunner } from "./sim-runner.ts";

export interface ModelRunnerOptions {
  kind: "model";
  /** Checkpoint folder. */
  dir: string;
  backend: BackendName;
  /** CPU backends; default all cores. */
  threads?: number;
  activations?: Activations;
  kvFormat?: KvFormat;
  deterministic?: boolean;
  /** Sequences that run at a time; default 64. */
  slots?: number;
  /** Longest sequence; default and upper bound: the model's own. */
  maxLen?: number;
  /** Tokens of one step; default 512. */
  maxTokens?: number;
  /** Memory of the KV cache in bytes; default 1 GiB, less where all slots at full length need less. */
  kvBytes?: number;
  /** Whether pages are checked before they are read; default off. */
  integrity?: IntegrityMode;
  /** Steps in flight; default 2 on CUDA, else 1. */
  depth?: number;
}

export interface SimRunnerOptions extends SimOptions {
  kind: "sim";
  slots: number;
  maxLen: number;
  maxTokens: number;
  pages: number;
  vocab: number;
}

export type RunnerOptions = ModelRunnerOptions | SimRunnerOptions;

const GIB = 2 ** 30;

/** Throws what loading throws: CheckpointError, AddonError, or a RangeError of options that don't fit together. */
export function openRunner(options: RunnerOptions, onProgress: (share: number) => void = () => {}): Runner {
  return options.kind === "sim" ? openSim(options) : openModelRunner(options, onProgress);
}

function openSim(options: SimRunnerOptions): SimRunner {
  const { slots, maxLen, maxTokens, pages, vocab } = options;
  const maxPages = Math.ceil(maxLen / PAGE_TOKENS);
  return new SimRunner({ slots, maxPages, maxLen, pages, vocab, maxTokens, maxRows: slots }, options);
}

export function openModelRunner(
  options: ModelRunnerOptions,
  onProgress: (share: number) => void = () => {},
): ModelRunner {
  const addon = loadAddon();
  const device = openDevice({ backend: options.backend, threads: options.threads });
  try {
    const model = loadModel(options.dir, device, {
      activations: options.activations ?? "bf16",
      kvFormat: options.kvFormat ?? "bf16",
      deterministic: options.deterministic,
      mapFile: addon.mapFile,
      onProgress: (done, total) => onProgress(total > 0 ? done / total : 1),
    });
    const slots = options.slots ?? 64;
    const maxLen = Math.min(options.maxLen ?? model.spec.maxPositions, model.spec.maxPositions);
    const maxPages = Math.ceil(maxLen / PAGE_TOKENS);
    const affordable = Math.floor((options.kvBytes ?? GIB) / model.kvBytesPerPage);
    const pages = 1 + Math.min(affordable, slots * maxPages);
    if (pages < 2) {
      const need = `one page takes ${model.kvBytesPerPage} bytes`;
      throw new RangeError(`the KV cache of ${options.kvBytes} bytes holds no page: ${need}`);
    }
    const maxTokens = Math.max(options.maxTokens ?? 512, slots);
    const limits = { slots, maxPages, maxLen, pages, vocab: model.spec.vocab, maxTokens, maxRows: slots };
    const depth = options.depth ?? (options.backend === "cuda" ? 2 : 1);
    const runner = new ModelRunner(device, model, limits, depth, options.integrity === "tags");
    runner.warmUp();
    return runner;
  } catch (error) {
    device.dispose();
    throw error;
  }
}
