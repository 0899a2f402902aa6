// A device without memory: tensors have shapes, ops do nothing. Building a model on it checks a checkpoint without
// reading it; running a step on it measures the step's arena exactly, with no formula that could drift from the code.
import type { DType, Tensor } from "../native/addon.ts";
import type { Ops } from "../native/ops.ts";
import type { WeightMemory } from "../weights/load.ts";
import type { StepDevice } from "./context.ts";

const ELEMENT_BYTES: Record<DType, number> = { f32: 4, bf16: 2, f16: 2, e4m3: 1, i32: 4, u8: 1 };
/** At least the alignment of an arena's allocations. */
const ALIGNMENT = 256;

/** A tensor that is only its shape. */
export function shapeTensor(dtype: DType, shape: readonly number[]): Tensor {
  return {
    dtype,
    shape,
    reshape: (other) => shapeTensor(dtype, other),
    slice: (dim, begin, end) =>
      shapeTensor(
        dtype,
        shape.map((size, i) => (i === dim ? end - begin : size)),
      ),
    splitLast: (last) => shapeTensor(dtype, [...shape.slice(0, -1), ...last]),
  };
}

export const dryMemory: WeightMemory = {
  alloc: shapeTensor,
  fromHost: (dtype, shape) => shapeTensor(dtype, shape),
  fromFile: (_file, _offset, dtype, shape) => shapeTensor(dtype, shape),
  upload: () => {},
};

/** Counts what a step takes from the arena. */
export class DryStep implements StepDevice {
  readonly ops: Ops = new Proxy({} as Ops, { get: () => () => {} });
  bytes = 0;

  temp(dtype: DType, shape: readonly number[]): Tensor {
    const bytes = shape.reduce((product, size) => product * size, ELEMENT_BYTES[dtype]);
    this.bytes += Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
    return shapeTensor(dtype, shape);
  }
}
