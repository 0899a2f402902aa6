// Mixture of experts: a router picks `perToken` experts for each token, shared experts serve all of them.
import type { Tensor } from "../native/addon.ts";
import type { WeightLoader } from "../weights/load.ts";
import type { Linear, Matrix } from "../weights/weight.ts";
import type { StepContext } from "./context.ts";
import { type FeedForward, linear, Mlp } from "./layers.ts";
import type { MoeSpec } from "./spec.ts";

export class Moe implements FeedForward {
  readonly #spec: MoeSpec;
  readonly #router: Linear;
  /** f32 [experts] */
  readonly #correction: Tensor | null;
  readonly #gate: Matrix;
  readonly #up: Matrix;
  readonly #down: Matrix;
  readonly #shared: Mlp | null;

  constructor(loader: WeightLoader, name: string, hidden: number, spec: MoeSpec) {
    const { experts, intermediate, sharedIntermediate } = spec;
    const expertNames = (part: string) =>
      Array.from({ length: experts }, (_, e) => `${name}.experts.${e}.${part}`);
    this.#spec = spec;
    this.#router = loader.linear(`${name}.gate`, experts, hidden);
    this.#correction = spec.correctionBias
      ? loader.f32(`${name}.gate.e_score_correction_bias`, [experts])
      : null;
    this.#gate = loader.stacked(expertNames("gate_proj"), intermediate, hidden);
    this.#up = loader.stacked(expertNames("up_proj"), intermediate, hidden);
    this.#down = loader.stacked(expertNames("down_proj"), hidden, intermediate);
    this.#shared = sharedIntermediate
      ? new Mlp(loader, `${name}.shared_experts`, hidden, {
          kind: "mlp",
          intermediate: sharedIntermediate,
          bias: false,
        })
      : null;
  }

  forward(step: StepContext, x: Tensor, out: Tensor): Tensor {
    const { experts, perToken, intermediate } = this.#spec;
    const tokens = x.shape[0];
    const logits = linear(step, x, this.#router, step.buffer("router logits", [tokens, experts], "f32"));
    const ids = step.buffer("expert ids", [tokens, perToken], "i32");
    const weights = step.buffer("expert weights", [tokens, perToken], "f32");
    step.ops.moe_route({
      logits,
      bias: this.#correction,
      ids,
      weights,
      scoring: this.#spec.scoring === "softmax" ? 0 : 1,
      groups: this.#spec.groups,
      top_groups: this.#spec.topGroups,
      normalize: this.#spec.normalize ? 1 : 0,
      scale: this.#spec.scale,
    });
    const hidden = step.buffer("expert hidden", [tokens, perToken, intermediate]);
    gateUp(step, x, ids, this.#gate, this.#up, hidden);
    down(step, hidden, ids, weights, this.#down, out);
    if (this.#shared) {
      const shared = this.#shared.forward(step, x, step.buffer("shared experts", x.shape, out.dtype));
      step.ops.add({ a: out, b: shared });
    }
    return out;
  }
}

/** out[t, j] = silu(x[t] gate_e^T) * (x[t] up_e^T) for e = ids[t, j]. */
function gateUp({ ops }: StepContext, x: Tensor, ids: Tensor, gate: Matrix, up: Matrix, out: Tensor): void {
  if (gate.kind === "dense" && up.kind === "dense") {
    ops.moe_gate_up({ x, ids, gate: gate.weight, up: up.weight, out });
  } else if (gate.kind === "fp8" && up.kind === "fp8") {
    ops.moe_gate_up_fp8({
      x,
      ids,
      gate: gate.weight,
      gate_scale: gate.scale,
      up: up.weight,
      up_scale: up.scale,
      out,
      block_n: gate.blockN,
      block_k: gate.blockK,
    });
  } else if (gate.kind === "int4" && up.kind === "int4" && gate.group === up.group) {
    ops.moe_gate_up_int4({
      x,
      ids,
      gate: gate.weight,
      gate_scale: gate.scale,
      gate_zero: gate.zero,
      up: up.weight,
      up_scale: up.scale,
      up_zero: up.zero,
      out,
      group: gate.group,
    });
  } else {
    throw new Error(
      `gate_proj (${gate.kind}) and up_proj (${up.kind}) of the experts are stored differently`,
    );
  }
}

/** out[t] = sum over j of weights[t, j] * (x[t, j] down_e^T) for e = ids[t, j]. */
function down(
  { ops }: StepContext,
  x: Tensor,
  ids: Tensor,
  weights: Tensor,
  matrix: Matrix,
  out: Tensor,
): void {
  switch (matrix.kind) {
    case "dense":
      ops.moe_down({ x, ids, weights, down: matrix.weight, out });
      break;
    case "fp8": {
      const { weight, scale: down_scale, blockN: block_n, blockK: block_k } = matrix;
      ops.moe_down_fp8({ x, ids, weights, down: weight, down_scale, out, block_n, block_k });
      break;
    }
    case "int4": {
      const { weight, scale: down_scale, zero: down_zero, group } = matrix;
      ops.moe_down_int4({ x, ids, weights, down: weight, down_scale, down_zero, out, group });
      break;
    }
  }
}
