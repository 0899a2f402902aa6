// Loading: the model asks for its tensors by name and shape and gets them on the device. Asking twice, first without
// reading (`check`), finds every missing, misshapen and unexpected tensor before a single weight is touched.
import type { Device, DType, Tensor } from "../native/addon.ts";
import type { Checkpoint, StoredTensor } from "./checkpoint.ts";
import { CheckpointError } from "./errors.ts";
import { floatPlane } from "./formats/dense.ts";
import type { BlockSize } from "./formats/fp8-block.ts";
import {
  type FloatDType,
  type Layout,
  type Plane,
  planeBytes,
  readStored,
  TensorMisfit,
} from "./formats/layout.ts";
import { dequantize, selectLayout } from "./formats/select.ts";
import { f32ToBf16, floatsOf } from "./numeric.ts";
import type { Linear, Matrix } from "./weight.ts";

/** What loading needs of a device. */
export type WeightMemory = Pick<Device, "alloc" | "fromHost" | "fromFile" | "upload">;

export interface LoadOptions {
  /** Prepended to every name that the model asks for. */
  prefix: string;
  /** Block of FP8 scales. */
  block: BlockSize;
  /** Nothing is read: tensors have shapes and no content. */
  check: boolean;
  /** Called with the bytes of all tensors asked for so far. */
  onProgress?: (bytes: number) => void;
}

/** A config with absurd counts must end in an error, not in a list that fills the memory. */
const MAX_MISSING = 10_000;

export class WeightLoader {
  readonly #checkpoint: Checkpoint;
  readonly #memory: WeightMemory;
  readonly #options: LoadOptions;
  readonly #used = new Set<string>();
  readonly #missing = new Set<string>();
  readonly #misfits: string[] = [];
  #bytes = 0;

  constructor(checkpoint: Checkpoint, memory: WeightMemory, options: LoadOptions) {
    this.#checkpoint = checkpoint;
    this.#memory = memory;
    this.#options = options;
  }

  /** Bytes of all tensors asked for so far. */
  get bytes(): number {
    return this.#bytes;
  }

  has(name: string): boolean {
    return this.#checkpoint.tensors.has(this.#options.prefix + name);
  }

  /** A float tensor as it is stored (BF16, F16 or F32), without a copy where the device allows it. */
  float(name: string, shape: readonly number[]): Tensor {
    const stored = this.#find(name);
    const plane = stored && this.#fit(() => floatPlane(stored, shape));
    return plane ? this.#load(plane) : this.#memory.alloc("f32", shape);
  }

  /** A float tensor converted to float32. */
  f32(name: string, shape: readonly number[]): Tensor {
    const stored = this.#find(name);
    const plane = stored && this.#fit(() => floatPlane(stored, shape));
    if (!stored || !plane || this.#options.check) return this.#memory.alloc("f32", shape);
    return this.#memory.fromHost("f32", shape, floatsOf(stored.dtype as FloatDType, readStored(stored)));
  }

  /** The first of `names` that exists, as one finite positive number; null when none does. */
  scalar(names: readonly string[]): number | null {
    const found = names.filter((name) => this.has(name)).map((name) => this.#find(name));
    const stored = found[0];
    if (!stored) return null;
    const value = this.#fit(() => {
      const plane = floatPlane(stored, stored.shape.length === 0 ? [] : [1]);
      return floatsOf(plane.stored.dtype as FloatDType, planeBytes(plane))[0];
    });
    if (value === null || (Number.isFinite(value) && value > 0)) return value;
    this.#misfits.push(`${stored.name}: ${value} is not a positive number`);
    return null;
  }

  /** y = x w^T + bias, with w [n, k] in whatever format it is stored. */
  linear(name: string, n: number, k: number, bias = false): Linear {
    const layout = this.#layout(name, n, k);
    const matrix: Matrix = layout
      ? this.#matrix(layout, (plane) => this.#load(plane))
      : { kind: "dense", n, k, weight: this.#memory.alloc("bf16", [n, k]) };
    return { matrix, bias: bias ? this.float(`${name}.bias`, [n]) : null };
  }

  /**
   * The matrices of `names` stacked to [names.length, n, k]. They are scattered over the file, so that this copies;
   * all of them must be stored alike.
   */
  stacked(names: readonly string[], n: number, k: number): Matrix {
    const layouts = names.map((name) => this.#layout(name, n, k));
    const first = layouts[0];
    const odd = layouts.findIndex((layout) => layout && first && format(layout) !== format(first));
    if (first && odd >= 0) {
      const what = `${format(layouts[odd] as Layout)}, but ${names[0]} is ${format(first)}`;
      this.#misfits.push(`${this.#options.prefix}${names[odd]}: stored as ${what}`);
    }
    if (!first || odd >= 0 || layouts.includes(null)) {
      return { kind: "dense", n, k, weight: this.#memory.alloc("bf16", [names.length, n, k]) };
    }
    const stack = (pick: (layout: Layout) => Plane) => this.#stack((layouts as Layout[]).map(pick));
    return this.#matrix(first, (_, pick) => stack(pick));
  }

  /** w [n, k] in float32 on the host, and the narrowest float type that holds it exactly; zeros when checking. */
  values(name: string, n: number, k: number): { values: Float32Array; dtype: DType } {
    const layout = this.#layout(name, n, k);
    if (!layout || this.#options.check) return { values: new Float32Array(0), dtype: "f32" };
    return { values: dequantize(layout), dtype: layout.kind === "dense" ? layout.weight.dtype : "f32" };
  }

  /** Puts float32 values on the device as f32 or bf16. */
  upload(dtype: "f32" | "bf16", shape: readonly number[], values: Float32Array): Tensor {
    if (this.#options.check) return this.#memory.alloc(dtype, shape);
    return this.#memory.fromHost(dtype, shape, dtype === "f32" ? values : f32ToBf16(values));
  }

  /**
   * Throws one CheckpointError that names every missing, misshapen and unexpected tensor. `ignored` says which names
   * a checkpoint may carry although the model does not use them.
   */
  finish(ignored: (name: string) => boolean): void {
    const unexpected = [...this.#checkpoint.tensors.keys()].filter(
      (name) => !this.#used.has(name) && !ignored(name),
    );
    if (this.#missing.size + this.#misfits.length + unexpected.length === 0) return;
    throw this.#error(unexpected.map((name) => `unexpected tensor ${name}`));
  }

  #error(more: string[]): CheckpointError {
    const missing = [...this.#missing].map((name) => `missing tensor ${name}`);
    const problems = [...missing, ...this.#misfits, ...more];
    return new CheckpointError("wrong_tensors", this.#checkpoint.dir, problems.join("\n  "));
  }

  #find(name: string): StoredTensor | null {
    const full = this.#options.prefix + name;
    const stored = this.#checkpoint.tensors.get(full);
    if (!stored) {
      this.#missing.add(full);
      if (this.#missing.size === MAX_MISSING) throw this.#error(["...: stopped looking for more"]);
      return null;
    }
    if (!this.#used.has(full)) {
      this.#used.add(full);
      this.#bytes += stored.end - stored.begin;
      this.#options.onProgress?.(this.#bytes);
    }
    return stored;
  }

  #layout(name: string, n: number, k: number): Layout | null {
    return this.#fit(() =>
      selectLayout(
        name,
        n,
        k,
        (part) => this.#find(part),
        (part) => this.has(part),
        this.#options.block,
      ),
    );
  }

  /** Notes a misfit instead of throwing it, so that all of them are reported at once. */
  #fit<T>(read: () => T): T | null {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof TensorMisfit)) throw error;
      this.#misfits.push(error.message);
      return null;
    }
  }

  #matrix(layout: Layout, place: (plane: Plane, pick: (layout: Layout) => Plane) => Tensor): Matrix {
    const { n, k } = layout;
    const weight = place(layout.weight, (l) => l.weight);
    if (layout.kind === "dense") return { kind: "dense", n, k, weight };
    const scale = place(layout.scale, (l) => (l as typeof layout).scale);
    if (layout.kind === "fp8") {
      return { kind: "fp8", n, k, weight, scale, blockN: layout.blockN, blockK: layout.blockK };
    }
    const zero = layout.zero && place(layout.zero, (l) => (l as typeof layout).zero as Plane);
    return { kind: "int4", n, k, weight, scale, zero, group: layout.group };
  }

  #load(plane: Plane): Tensor {
    if (this.#options.check) return this.#memory.alloc(plane.dtype, plane.shape);
    const { file, begin } = plane.stored;
    if (plane.convert) return this.#memory.fromHost(plane.dtype, plane.shape, planeBytes(plane));
    return this.#memory.fromFile(file, begin, plane.dtype, plane.shape);
  }

  #stack(planes: Plane[]): Tensor {
    const { dtype, shape } = planes[0];
    const target = this.#memory.alloc(dtype, [planes.length, ...shape]);
    if (this.#options.check) return target;
    for (const [i, plane] of planes.entries()) {
      this.#memory.upload(target.slice(0, i, i + 1), planeBytes(plane));
    }
    return target;
  }
}

/** Everything that the tensors of a stack must share beside their shape. */
function format(layout: Layout): string {
  if (layout.kind === "dense") return layout.weight.dtype;
  if (layout.kind === "fp8") return `fp8 in blocks of ${layout.blockN} x ${layout.blockK}`;
  return `int4 in groups of ${layout.group}, scales ${layout.scale.dtype}${layout.zero ? ", with zero points" : ""}`;
}
