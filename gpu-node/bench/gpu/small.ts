// What a decode step does besides attention and matrices: norms, activation, routing, KV writes, sampling.
import { GREEDY, PARAM_COUNT, packSampling } from "../../engine/sampling.ts";
import { type KvGeometry, kvFormatCode, kvPageBytes, PAGE_TOKENS } from "../../kv/format.ts";
import type { Tensor } from "../../native/addon.ts";
import type { OpDevice } from "../../native/device.ts";
import { type Accuracy, type BenchMemory, copiesFor, type KernelShape, moved, rmsError } from "./shape.ts";

const EPS = 1e-6;

/** One set of tensors, the call on them, and the tensor that holds the answer. */
interface Buffers {
  inputs: Record<string, Tensor>;
  run(device: OpDevice, on: Record<string, Tensor>): Tensor;
}

/** Small enough that the reference does all of it. */
function simple(
  group: string,
  name: string,
  bytes: number,
  make: (memory: BenchMemory) => Buffers,
  judge: (got: ArrayBuffer, wanted: ArrayBuffer, dtype: string) => Accuracy = byValue,
): KernelShape {
  return {
    group,
    name,
    bytes,
    flops: 0,
    prepare(memory, cold) {
      const { device } = memory;
      const copies = copiesFor(bytes, cold);
      const sets = Array.from({ length: copies }, () => make(memory));
      return {
        copies,
        call: (i) => void sets[i % copies].run(device, sets[i % copies].inputs),
        check(reference) {
          const { inputs, run } = sets[copies - 1];
          const there = Object.fromEntries(
            Object.entries(inputs).map(([key, tensor]) => [key, moved(device, reference, tensor)]),
          );
          const wanted = run(reference, there);
          const got = run(device, inputs);
          return judge(device.read(got), reference.read(wanted), got.dtype);
        },
      };
    },
  };
}

function byValue(got: ArrayBuffer, wanted: ArrayBuffer, dtype: string): Accuracy {
  const floats = (bytes: ArrayBuffer) =>
    dtype === "f32"
      ? new Float32Array(bytes)
      : new Float32Array(Uint32Array.from(new Uint16Array(bytes), (half) => half << 16).buffer);
  return rmsError(floats(got), floats(wanted));
}

export function normShape(tokens: number, width: number): KernelShape {
  return simple("small", `add_rms_norm ${tokens} x ${width}`, tokens * width * (4 + 4 + 4 + 2), (memory) => ({
    inputs: {
      residual: memory.random("f32", [tokens, width]),
      x: memory.random("f32", [tokens, width]),
      weight: memory.random("bf16", [width]),
      out: memory.device.alloc("bf16", [tokens, width]),
    },
    run(device, { residual, x, weight, out }) {
      device.ops.add_rms_norm({ residual, x, weight, out, eps: EPS });
      return out;
    },
  }));
}

export function siluShape(tokens: number, width: number): KernelShape {
  return simple("small", `silu_mul ${tokens} x ${width}`, tokens * width * 6, (memory) => ({
    inputs: {
      gate: memory.random("bf16", [tokens, width]),
      up: memory.random("bf16", [tokens, width]),
      out: memory.device.alloc("bf16", [tokens, width]),
    },
    run(device, { gate, up, out }) {
      device.ops.silu_mul({ gate, up, out });
      return out;
    },
  }));
}

export function routeShape(tokens: number, experts: number, perToken: number): KernelShape {
  const name = `moe_route ${tokens} x ${experts}, top ${perToken}`;
  return simple("small", name, tokens * (experts * 4 + perToken * 8), (memory) => ({
    inputs: {
      logits: memory.random("f32", [tokens, experts]),
      bias: memory.random("f32", [experts]),
      ids: memory.device.alloc("i32", [tokens, perToken]),
      weights: memory.device.alloc("f32", [tokens, perToken]),
    },
    run(device, { logits, bias, ids, weights }) {
      const rules = { scoring: 1, groups: 1, top_groups: 1, normalize: 1, scale: 2.5 };
      device.ops.moe_route({ logits, bias, ids, weights, ...rules });
      return weights;
    },
  }));
}

/** Stored and read back: the time is that of both. */
export function kvWriteShape(tokens: number, geometry: Extract<KvGeometry, { kind: "mla" }>): KernelShape {
  const width = geometry.kvLora + geometry.ropeDim;
  const format = kvFormatCode("fp8");
  return simple(
    "small",
    `kv_write_mla + kv_unpack fp8 ${tokens} x ${width}`,
    tokens * width * 5,
    (memory) => {
      const order = memory.permutation(1, tokens);
      const slots = order.map((page, i) => page * PAGE_TOKENS + (i % PAGE_TOKENS));
      return {
        inputs: {
          latent: memory.random("bf16", [tokens, width]),
          pool: memory.device.alloc("u8", [tokens + 1, kvPageBytes("fp8", geometry)]),
          slots: memory.i32([tokens], slots),
          stats: memory.device.alloc("i32", [2]),
          rows: memory.device.alloc("u8", [tokens, width]),
        },
        run(device, { latent, pool, slots, stats, rows }) {
          const common = { pool, scales: null, format };
          device.ops.kv_write_mla({ ...common, latent, write_slots: slots, stats, scale: 1 });
          device.ops.kv_unpack({ ...common, slots, rows, heads: 0 });
          return rows;
        },
      };
    },
    (got, wanted) => ({
      error: Buffer.compare(Buffer.from(got), Buffer.from(wanted)) === 0 ? 0 : 1,
      bound: 0,
    }),
  );
}

/** Half of the rows greedy, half top-k 50 and top-p 0.95. */
export function sampleShape(rows: number, vocab: number): KernelShape {
  return simple(
    "sample",
    `sample ${rows} x ${vocab}`,
    rows * vocab * 4,
    (memory) => {
      const params = new Int32Array(rows * PARAM_COUNT);
      const lines = new Int32Array(rows * 4);
      for (let row = 0; row < rows; row++) {
        const drawn = { ...GREEDY, temperature: 1, topK: 50, topP: 0.95, seedLow: row + 1 };
        packSampling(row % 2 ? drawn : GREEDY, params, row * PARAM_COUNT);
        lines.set([row, 3, 1, 2], row * 4);
      }
      return {
        inputs: {
          logits: memory.random("f32", [rows, vocab]),
          rows: memory.i32([rows, 4], lines),
          params: memory.i32([rows, PARAM_COUNT], params),
          bias_ids: memory.device.alloc("i32", [rows, 300]),
          bias_values: memory.device.alloc("f32", [rows, 300]),
          history: memory.device.alloc("i32", [rows, 8]),
          out: memory.device.alloc("i32", [rows, 48]),
        },
        run(device, { out, ...rest }) {
          const { logits, rows: lines, params, bias_ids, bias_values, history } = rest;
          device.ops.sample({ logits, rows: lines, params, bias_ids, bias_values, history, out });
          return out;
        },
      };
    },
    (got, wanted) => {
      const token = (bytes: ArrayBuffer, row: number) => new Int32Array(bytes)[row * 48 + 2];
      const other = Array.from({ length: rows }, (_, row) => row).filter(
        (row) => token(got, row) !== token(wanted, row),
      );
      return { error: other.length / rows, bound: 0 };
    },
  );
}
