// What a forward pass computes with: ops, and buffers that live for one step.
import type { DType, Tensor } from "../native/addon.ts";
import type { Ops } from "../native/ops.ts";

export type Activations = "f32" | "bf16";

/** What a step needs of a device. */
export interface StepDevice {
  readonly ops: Ops;
  temp(dtype: DType, shape: readonly number[]): Tensor;
}

/**
 * One step. Buffers are known by name: the layers run one after the other on one stream, so that each layer may use the
 * buffers of the one before, and a step needs the memory of its widest layer.
 */
export class StepContext {
  readonly ops: Ops;
  /** dtype of activations. The residual stream is f32 always. */
  readonly act: Activations;
  /** A token's bits must not depend on what else the step computes, nor on how its sequence is cut into steps. */
  readonly deterministic: boolean;
  readonly #device: StepDevice;
  readonly #buffers = new Map<string, Tensor>();

  constructor(device: StepDevice, act: Activations, deterministic: boolean) {
    this.ops = device.ops;
    this.act = act;
    this.deterministic = deterministic;
    this.#device = device;
  }

  /** Uninitialised memory; the same for the same name and shape until the step ends. */
  buffer(name: string, shape: readonly number[], dtype: DType = this.act): Tensor {
    const key = `${name} ${dtype} ${shape.join(" ")}`;
    let tensor = this.#buffers.get(key);
    if (!tensor) {
      tensor = this.#device.temp(dtype, shape);
      this.#buffers.set(key, tensor);
    }
    return tensor;
  }
}
