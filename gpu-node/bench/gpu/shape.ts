// What a GPU bench row is, and the device memory it works on.
import type { DType, Tensor } from "../../native/addon.ts";
import type { OpDevice } from "../../native/device.ts";

/** What test/bench/peers.py runs with PyTorch under the same name. */
export type PeerSpec =
  | { kind: "linear"; m: number; n: number; k: number }
  | { kind: "attention"; batch: number; heads: number; kvHeads: number; dim: number; context: number };

export interface KernelShape {
  group: string;
  name: string;
  /** Bytes that have to be moved, operations that have to be done. */
  bytes: number;
  flops: number;
  targetUs?: number;
  /** The best public kernel's time, where one was measured. */
  peerUs?: number;
  peer?: PeerSpec;
  prepare(memory: BenchMemory, coldBytes: number): Prepared;
}

export interface Prepared {
  /** Sets of buffers: call i uses set i % copies, so that what it reads is in no cache. */
  copies: number;
  call(i: number): void;
  /** Bytes of one call, where they depend on the data (which experts are chosen). */
  bytes?: number;
  /** The last output of set 0, or a sample of it, against the reference op. */
  check(reference: OpDevice): Accuracy;
}

export interface Accuracy {
  /** RMS of the difference / RMS of the reference; for sampling the share of other tokens. */
  error: number;
  bound: number;
}

/** bf16 outputs and FP16 products: rounding alone is 2e-3. */
export const RMS_BOUND = 1e-2;

export const copiesFor = (bytes: number, coldBytes: number) =>
  Math.max(2, Math.min(64, Math.ceil(coldBytes / bytes)));

/** An odd number of cache lines: repetitions of the block lie differently in every buffer. */
const BLOCK_BYTES = (1 << 24) - 64 * 37;

/** Random numbers and blocks of random values, made once per run. */
export class RandomBlocks {
  readonly #state = Uint32Array.of(1);
  readonly #blocks = new Map<DType, Uint8Array>();

  /** Uniform 32-bit integers (xorshift32). */
  next(): number {
    let x = this.#state[0];
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#state[0] = x;
    return this.#state[0];
  }

  block(dtype: "bf16" | "e4m3" | "f32" | "u8"): Uint8Array {
    let block = this.#blocks.get(dtype);
    if (block) return block;
    const words = Uint32Array.from({ length: BLOCK_BYTES / 4 }, () => this.next());
    block = new Uint8Array(words.buffer);
    if (dtype === "bf16") {
      const halves = new Uint16Array(words.buffer);
      for (let i = 0; i < halves.length; i++) {
        halves[i] = (halves[i] & 0x807f) | ((120 + ((halves[i] >>> 7) & 7)) << 7);
      }
    } else if (dtype === "f32") {
      for (let i = 0; i < words.length; i++) {
        words[i] = ((words[i] & 0x807fffff) | ((120 + ((words[i] >>> 23) & 7)) << 23)) >>> 0;
      }
    } else if (dtype === "e4m3") {
      for (let i = 0; i < block.length; i++)
        block[i] = (block[i] & 0x87) | ((3 + ((block[i] >>> 3) & 7)) << 3);
    }
    this.#blocks.set(dtype, block);
    return block;
  }
}

/**
 * Fills device memory with random values of moderate size, uploading one random block again and again: making gigabytes
 * of random numbers in JavaScript would take longer than the measurement.
 */
export class BenchMemory {
  readonly device: OpDevice;
  readonly #source: RandomBlocks;

  constructor(device: OpDevice, source: RandomBlocks) {
    this.device = device;
    this.#source = source;
  }

  below(n: number): number {
    return this.#source.next() % n;
  }

  /** bf16: 2^-7 to 2 of either sign; e4m3: 2^-4 to 2^4; f32: 2^-7 to 2; u8: all bytes. */
  random(dtype: "bf16" | "e4m3" | "f32" | "u8", shape: number[], as: "u8" | undefined = undefined): Tensor {
    const tensor = this.device.alloc(as ?? dtype, shape);
    const size = dtype === "bf16" ? 2 : dtype === "f32" ? 4 : 1;
    const width = as ? 1 : size;
    const flat = tensor.reshape([shape.reduce((a, b) => a * b, 1)]);
    const total = flat.shape[0] * width;
    const block = this.#source.block(dtype);
    for (let at = 0; at < total; at += block.length) {
      const bytes = Math.min(block.length, total - at);
      this.device.upload(flat.slice(0, at / width, (at + bytes) / width), block.subarray(0, bytes));
    }
    return tensor;
  }

  i32(shape: number[], data: Int32Array): Tensor {
    return this.device.fromHost("i32", shape, data);
  }

  constant(dtype: "f32" | "bf16", shape: number[], value: number): Tensor {
    const count = shape.reduce((a, b) => a * b, 1);
    const floats = new Float32Array(count).fill(value);
    if (dtype === "f32") return this.device.fromHost("f32", shape, floats);
    const bits = new Uint32Array(floats.buffer);
    return this.device.fromHost(
      "bf16",
      shape,
      Uint16Array.from(bits, (word) => word >>> 16),
    );
  }

  /** Random order of first .. first + count - 1. */
  permutation(first: number, count: number): Int32Array {
    const list = Int32Array.from({ length: count }, (_, i) => first + i);
    for (let i = count - 1; i > 0; i--) {
      const j = this.below(i + 1);
      [list[i], list[j]] = [list[j], list[i]];
    }
    return list;
  }
}

/** Values of a bf16 or f32 tensor, on the host. */
export function floatsOn(device: OpDevice, tensor: Tensor): Float32Array {
  const bytes = device.read(tensor);
  if (tensor.dtype === "f32") return new Float32Array(bytes);
  return new Float32Array(Uint32Array.from(new Uint16Array(bytes), (half) => half << 16).buffer);
}

/** The same tensor on another device. */
export function moved(from: OpDevice, to: OpDevice, tensor: Tensor): Tensor {
  return to.fromHost(tensor.dtype, tensor.shape, new Uint8Array(from.read(tensor)));
}

export function rmsError(got: Float32Array, wanted: Float32Array): Accuracy {
  let difference = 0;
  let scale = 0;
  for (let i = 0; i < wanted.length; i++) {
    difference += (got[i] - wanted[i]) ** 2;
    scale += wanted[i] ** 2;
  }
  return { error: Math.sqrt(difference / scale), bound: RMS_BOUND };
}
