// The parts that all models share: linear layers in every weight format, norms, the gated MLP.
import type { Tensor } from "../native/addon.ts";
import type { WeightLoader } from "../weights/load.ts";
import type { Linear } from "../weights/weight.ts";
import type { StepContext } from "./context.ts";
import type { MlpSpec } from "./spec.ts";

/** out = x w^T + bias. x act [T, K], out act or f32 [T, N]. Returns out. */
export function linear({ ops }: StepContext, x: Tensor, { matrix, bias }: Linear, out: Tensor): Tensor {
  switch (matrix.kind) {
    case "dense":
      ops.linear({ x, w: matrix.weight, bias, out });
      break;
    case "fp8": {
      const { weight: w, scale, blockN: block_n, blockK: block_k } = matrix;
      ops.linear_fp8({ x, w, scale, bias, out, block_n, block_k });
      break;
    }
    case "int4": {
      const { weight: w, scale, zero, group } = matrix;
      ops.linear_int4({ x, w, scale, zero, bias, out, group });
      break;
    }
  }
  return out;
}

/** RMSNorm (arXiv 1910.07467). */
export class RmsNorm {
  readonly #weight: Tensor;
  readonly #eps: number;

  constructor(loader: WeightLoader, name: string, width: number, eps: number) {
    this.#weight = loader.float(`${name}.weight`, [width]);
    this.#eps = eps;
  }

  /** out = norm(x) over the last dimension; out may be x. Returns out. */
  apply({ ops }: StepContext, x: Tensor, out: Tensor): Tensor {
    ops.rms_norm({ x, weight: this.#weight, out, eps: this.#eps });
    return out;
  }

  /** residual += x, then out = norm(residual). residual f32 [T, H], x and out act [T, H]. Returns out. */
  addTo({ ops }: StepContext, residual: Tensor, x: Tensor, out: Tensor): Tensor {
    ops.add_rms_norm({ residual, x, weight: this.#weight, out, eps: this.#eps });
    return out;
  }
}

/** x act [T, H] -> [T, H], written to `out`, act or f32. Returns out. */
export interface FeedForward {
  forward(step: StepContext, x: Tensor, out: Tensor): Tensor;
}

/** down(silu(gate x) * up x) (arXiv 2002.05202). */
export class Mlp implements FeedForward {
  readonly #gate: Linear;
  readonly #up: Linear;
  readonly #down: Linear;
  readonly #width: number;

  constructor(loader: WeightLoader, name: string, hidden: number, { intermediate, bias }: MlpSpec) {
    this.#width = intermediate;
    this.#gate = loader.linear(`${name}.gate_proj`, intermediate, hidden, bias);
    this.#up = loader.linear(`${name}.up_proj`, intermediate, hidden, bias);
    this.#down = loader.linear(`${name}.down_proj`, hidden, intermediate, bias);
  }

  forward(step: StepContext, x: Tensor, out: Tensor): Tensor {
    const shape = [x.shape[0], this.#width];
    const gate = linear(step, x, this.#gate, step.buffer("mlp gate", shape));
    const up = linear(step, x, this.#up, step.buffer("mlp up", shape));
    const hidden = step.buffer("mlp hidden", shape);
    step.ops.silu_mul({ gate, up, out: hidden });
    return linear(step, hidden, this.#down, out);
  }
}
