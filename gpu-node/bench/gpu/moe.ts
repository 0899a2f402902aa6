// The routed experts of a layer: gate and up with SiLU, down, weighted sum; uniform routing, distinct experts per token.
import type { Tensor } from "../../native/addon.ts";
import type { OpDevice } from "../../native/device.ts";
import { type Form, type Matrix, movedRows, randomMatrix, weightBytes } from "./linear.ts";
import { type BenchMemory, floatsOn, type KernelShape, moved, type Prepared, rmsError } from "./shape.ts";

export interface MoeLoad {
  label: string;
  form: Extract<Form, { kind: "int4" | "fp8" }>;
  tokens: number;
  experts: number;
  perToken: number;
  hidden: number;
  /** Of one expert: gate and up are [inner, hidden], down [hidden, inner]. */
  inner: number;
  targetUs?: number;
  peerUs?: number;
}

/** Weights of so many layers; calls also differ in their routing. */
const COPIES = 3;
const ROUTINGS = 24;
const BLOCK = 128;
const CHECKED_COLUMNS = 32;

export function moeShape(load: MoeLoad): KernelShape {
  const { label, form, tokens, experts, perToken, hidden, inner, targetUs, peerUs } = load;
  const expected = experts * (1 - (1 - perToken / experts) ** tokens);
  return {
    group: "moe",
    name: `moe ${label} ${form.kind}, ${tokens} tokens`,
    bytes: expected * weightBytes(form, 3 * hidden * inner),
    flops: 2 * tokens * perToken * 3 * hidden * inner,
    targetUs,
    peerUs,
    prepare: (memory) => new MoeBuffers(memory, load),
  };
}

interface Layer {
  gate: Matrix;
  up: Matrix;
  down: Matrix;
}

class MoeBuffers implements Prepared {
  readonly copies = ROUTINGS;
  readonly bytes: number;
  readonly #memory: BenchMemory;
  readonly #load: MoeLoad;
  readonly #layers: Layer[];
  readonly #ids: { host: Int32Array; device: Tensor }[];
  readonly #x: Tensor;
  readonly #weights: Tensor;
  readonly #inner: Tensor;
  readonly #out: Tensor;

  constructor(memory: BenchMemory, load: MoeLoad) {
    const { tokens, perToken, experts, hidden, inner, form } = load;
    const { device } = memory;
    this.#memory = memory;
    this.#load = load;
    this.#layers = Array.from({ length: COPIES }, () => ({
      gate: randomMatrix(memory, form, [experts], inner, hidden),
      up: randomMatrix(memory, form, [experts], inner, hidden),
      down: randomMatrix(memory, form, [experts], hidden, inner),
    }));
    this.#ids = Array.from({ length: ROUTINGS }, () => {
      const host = new Int32Array(tokens * perToken);
      for (let t = 0; t < tokens; t++) {
        host.set(memory.permutation(0, experts).subarray(0, perToken), t * perToken);
      }
      return { host, device: memory.i32([tokens, perToken], host) };
    });
    const distinct = this.#ids.reduce((sum, { host }) => sum + new Set(host).size, 0) / ROUTINGS;
    this.bytes = distinct * weightBytes(form, 3 * hidden * inner);
    this.#x = memory.random("bf16", [tokens, hidden]);
    this.#weights = memory.constant("f32", [tokens, perToken], 1 / perToken);
    this.#inner = device.alloc("bf16", [tokens, perToken, inner]);
    this.#out = device.alloc("bf16", [tokens, hidden]);
  }

  call(i: number): void {
    const { device } = this.#memory;
    const { gate, up, down } = this.#layers[i % COPIES];
    const ids = this.#ids[i % ROUTINGS].device;
    gateUp(device, this.#load.form, gate, up, this.#x, ids, this.#inner);
    project(device, this.#load.form, down, this.#inner, ids, this.#weights, this.#out);
  }

  /** The last token: the first columns of its last expert's inner values, and of its output from all inner values. */
  check(reference: OpDevice) {
    const { device } = this.#memory;
    const { tokens, perToken, inner, form, hidden } = this.#load;
    this.call(0);
    const last = tokens - 1;
    const chosen = this.#ids[0].host.subarray(last * perToken);
    const { gate, up, down } = this.#layers[0];
    const at = (tensor: Tensor) => tensor.slice(0, last, last + 1);
    const columns = Math.min(CHECKED_COLUMNS, inner, hidden);

    const expert = chosen[perToken - 1];
    const wantedInner = reference.alloc("bf16", [1, 1, columns]);
    const cut = (matrix: Matrix) => movedRows(device, reference, matrix, columns, expert);
    const zero = reference.fromHost("i32", [1, 1], Int32Array.of(0));
    gateUp(reference, form, cut(gate), cut(up), moved(device, reference, at(this.#x)), zero, wantedInner);
    const gotInner = at(this.#inner)
      .slice(1, perToken - 1, perToken)
      .slice(2, 0, columns);

    const sum = new Float32Array(columns);
    for (let slot = 0; slot < perToken; slot++) {
      const part = reference.alloc("f32", [1, columns]);
      const x = moved(device, reference, at(this.#inner).slice(1, slot, slot + 1));
      const weight = moved(device, reference, at(this.#weights).slice(1, slot, slot + 1));
      project(
        reference,
        form,
        movedRows(device, reference, down, columns, chosen[slot]),
        x,
        zero,
        weight,
        part,
      );
      floatsOn(reference, part).forEach((value, i) => {
        sum[i] += value;
      });
    }
    const first = rmsError(floatsOn(device, gotInner), floatsOn(reference, wantedInner));
    const second = rmsError(floatsOn(device, at(this.#out).slice(1, 0, columns)), sum);
    return first.error > second.error ? first : second;
  }
}

function gateUp(
  device: OpDevice,
  form: MoeLoad["form"],
  gate: Matrix,
  up: Matrix,
  x: Tensor,
  ids: Tensor,
  out: Tensor,
): void {
  const weights = { gate: gate.weight, gate_scale: scaleOf(gate), up: up.weight, up_scale: scaleOf(up) };
  const common = { x, ids, ...weights, out };
  if (form.kind === "fp8") device.ops.moe_gate_up_fp8({ ...common, block_n: BLOCK, block_k: BLOCK });
  else device.ops.moe_gate_up_int4({ ...common, gate_zero: null, up_zero: null, group: form.group });
}

function project(
  device: OpDevice,
  form: MoeLoad["form"],
  down: Matrix,
  x: Tensor,
  ids: Tensor,
  weights: Tensor,
  out: Tensor,
): void {
  const common = { x, ids, weights, down: down.weight, down_scale: scaleOf(down), out };
  if (form.kind === "fp8") device.ops.moe_down_fp8({ ...common, block_n: BLOCK, block_k: BLOCK });
  else device.ops.moe_down_int4({ ...common, down_zero: null, group: form.group });
}

function scaleOf({ scale }: Matrix): Tensor {
  if (scale === null) throw new Error("a quantized matrix has scales");
  return scale;
}
