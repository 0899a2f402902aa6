// INT4 as compressed-tensors packs it (format "pack-quantized", num_bits 4), one set of tensors per linear layer:
//   weight_packed      I32 [n, ceil(k / 8)]: element j of a row in bits 4 (j % 8) of word j / 8, stored as q + 8
//   weight_scale       float [n, k / group]
//   weight_zero_point  asymmetric only: I32 [ceil(n / 8), k / group], packed along n the same way; or I8 [n, k / group]
//   weight_shape       I64 or I32 [2] = n, k
// Little-endian words make the bytes of a row a plain nibble array, low nibble first: what the int4 ops read.
// w = (nibble - zero) * scale, where zero is 8 without weight_zero_point.
import type { StoredTensor } from "../checkpoint.ts";
import { aligned } from "../numeric.ts";
import { floatPlane } from "./dense.ts";
import { expectShape, type Find, type Layout, type Plane, readStored, TensorMisfit } from "./layout.ts";

const SYMMETRIC_ZERO = 8;

/** Layout of linear `name`, whose weight_packed is `packed`. Null when a tensor is missing (noted by `find`). */
export function int4Layout(
  name: string,
  packed: StoredTensor,
  find: Find,
  has: (name: string) => boolean,
  n: number,
  k: number,
): Layout | null {
  if (has(`${name}.weight_g_idx`)) {
    throw new TensorMisfit(
      `${name}.weight_g_idx: activation-ordered groups (actorder "group") are not supported`,
    );
  }
  const scale = find(`${name}.weight_scale`);
  if (has(`${name}.weight_shape`)) checkShape(find(`${name}.weight_shape`), n, k);
  const zero = has(`${name}.weight_zero_point`) ? find(`${name}.weight_zero_point`) : null;
  if (!scale) return null;

  const groups = scale.shape[1];
  if (scale.shape.length !== 2 || !groups || k % groups !== 0) {
    throw new TensorMisfit(
      `${scale.name}: shape [${scale.shape.join(", ")}] does not divide ${k} columns into groups`,
    );
  }
  return {
    kind: "int4",
    n,
    k,
    weight: weightPlane(packed, n, k),
    scale: floatPlane(scale, [n, groups]),
    zero: zero && zeroPlane(zero, n, groups),
    group: k / groups,
  };
}

function weightPlane(packed: StoredTensor, n: number, k: number): Plane {
  const words = Math.ceil(k / 8);
  expectShape(packed, [n, words]);
  if (packed.dtype !== "I32") throw new TensorMisfit(`${packed.name}: dtype ${packed.dtype}, expected I32`);
  if (k % 2) throw new TensorMisfit(`${packed.name}: an odd number of columns (${k}) is not supported`);
  const dropPadding = (bytes: Uint8Array) => {
    const rows = new Uint8Array((n * k) / 2);
    for (let i = 0; i < n; i++) rows.set(bytes.subarray(i * words * 4, i * words * 4 + k / 2), (i * k) / 2);
    return rows;
  };
  return { stored: packed, dtype: "u8", shape: [n, k / 2], convert: k % 8 ? dropPadding : null };
}

function zeroPlane(zero: StoredTensor, n: number, groups: number): Plane {
  const plane = { stored: zero, dtype: "u8" as const, shape: [n, groups] };
  if (zero.dtype === "I8") {
    expectShape(zero, [n, groups]);
    return { ...plane, convert: (bytes) => Uint8Array.from(bytes, (z) => (z + SYMMETRIC_ZERO) & 15) };
  }
  expectShape(zero, [Math.ceil(n / 8), groups]);
  if (zero.dtype !== "I32") throw new TensorMisfit(`${zero.name}: dtype ${zero.dtype}, expected I32 or I8`);
  const unpack = (bytes: Uint8Array) => {
    const words = new Uint32Array(aligned(bytes));
    const out = new Uint8Array(n * groups);
    for (let i = 0; i < n; i++) {
      const row = Math.floor(i / 8) * groups;
      for (let g = 0; g < groups; g++) out[i * groups + g] = (words[row + g] >>> (4 * (i % 8))) & 15;
    }
    return out;
  };
  return { ...plane, convert: unpack };
}

function checkShape(stored: StoredTensor | null, n: number, k: number): void {
  if (!stored) return;
  expectShape(stored, [2]);
  if (stored.dtype !== "I64" && stored.dtype !== "I32") {
    throw new TensorMisfit(`${stored.name}: dtype ${stored.dtype}, expected I64 or I32`);
  }
  const bytes = aligned(readStored(stored));
  const shape =
    stored.dtype === "I64" ? [...new BigInt64Array(bytes)].map(Number) : [...new Int32Array(bytes)];
  if (shape[0] !== n || shape[1] !== k) {
    throw new TensorMisfit(`${stored.name}: says [${shape.join(", ")}], config.json asks for [${n}, ${k}]`);
  }
}

/** [n, k] float32 of packed nibbles, scales and zero points. */
export function dequantizeInt4(
  nibbles: Uint8Array,
  scales: Float32Array,
  zeros: Uint8Array | null,
  n: number,
  k: number,
  group: number,
): Float32Array {
  const out = new Float32Array(n * k);
  const groups = k / group;
  for (let i = 0; i < n * k; i++) {
    const at = Math.floor(i / k) * groups + Math.floor((i % k) / group);
    const nibble = (nibbles[i >>> 1] >>> (4 * (i & 1))) & 15;
    out[i] = (nibble - (zeros ? zeros[at] : SYMMETRIC_ZERO)) * scales[at];
  }
  return out;
}
