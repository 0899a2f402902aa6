// The number formats in TypeScript, independent of native/core/float.h: tables of all codes, nearest by search.
import type { DType } from "../../gpu-node/native/addon.ts";

export const BYTES: Record<DType, number> = { f32: 4, bf16: 2, f16: 2, e4m3: 1, i32: 4, u8: 1 };

/** Value of a code of a format with sign, `exponentBits` and `mantissaBits`, by the definition. */
function value(code: number, exponentBits: number, mantissaBits: number): number {
  const bias = 2 ** (exponentBits - 1) - 1;
  const mantissa = code % 2 ** mantissaBits;
  const exponent = Math.floor(code / 2 ** mantissaBits) % 2 ** exponentBits;
  const negative = Math.floor(code / 2 ** (mantissaBits + exponentBits)) === 1;
  const fraction = mantissa / 2 ** mantissaBits;
  const magnitude = exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias);
  return negative ? -magnitude : magnitude;
}

export function decodeE4m3(code: number): number {
  return (code & 0x7f) === 0x7f ? Number.NaN : value(code, 4, 3);
}

export function decodeBf16(code: number): number {
  if ((code & 0x7f80) !== 0x7f80) return value(code, 8, 7);
  if (code & 0x7f) return Number.NaN;
  return code & 0x8000 ? -Infinity : Infinity;
}

export function decodeF16(code: number): number {
  if ((code & 0x7c00) !== 0x7c00) return value(code, 5, 10);
  if (code & 0x3ff) return Number.NaN;
  return code & 0x8000 ? -Infinity : Infinity;
}

const table = (codes: number, decode: (code: number) => number) =>
  Float64Array.from({ length: codes }, (_, code) => decode(code));

const BF16_VALUES = table(65536, decodeBf16);
const F16_VALUES = table(65536, decodeF16);
const E4M3_VALUES = table(256, decodeE4m3);

// Finite magnitudes ascend with the code, so the two neighbours of a value are found by bisection; a tie goes to the
// even code. `top` is the code of the largest finite magnitude, `sign` the sign bit.
function encode(x: number, sign: number, top: number, magnitudes: Float64Array): number {
  const a = Math.abs(x);
  let low = 0;
  let high = top;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (magnitudes[middle] <= a) low = middle;
    else high = middle - 1;
  }
  const below = a - magnitudes[low];
  const above = low < top ? magnitudes[low + 1] - a : Infinity;
  const up = above < below || (above === below && low % 2 === 1);
  return (up ? low + 1 : low) | (x < 0 || Object.is(x, -0) ? sign : 0);
}

/** Saturates, infinities too. */
export function encodeE4m3(x: number): number {
  return Number.isNaN(x) ? 0x7f : encode(x, 0x80, 0x7e, E4M3_VALUES);
}

export function encodeBf16(x: number): number {
  if (Number.isNaN(x)) return 0x7fc0;
  const limit = decodeBf16(0x7f7f) + 2 ** 119; // half a step beyond the largest finite value
  if (Math.abs(x) >= limit) return x < 0 ? 0xff80 : 0x7f80;
  return encode(x, 0x8000, 0x7f7f, BF16_VALUES);
}

export function encodeF16(x: number): number {
  if (Number.isNaN(x)) return 0x7e00;
  if (Math.abs(x) >= 65520) return x < 0 ? 0xfc00 : 0x7c00;
  return encode(x, 0x8000, 0x7bff, F16_VALUES);
}

const CODECS = {
  bf16: { encode: encodeBf16, values: BF16_VALUES, array: Uint16Array },
  f16: { encode: encodeF16, values: F16_VALUES, array: Uint16Array },
  e4m3: { encode: encodeE4m3, values: E4M3_VALUES, array: Uint8Array },
} as const;

type Codec = (typeof CODECS)[keyof typeof CODECS];

/** The value that a tensor of `dtype` holds for `x`. */
export function roundTo(dtype: DType, x: number): number {
  if (dtype === "f32") return Math.fround(x);
  if (dtype === "i32" || dtype === "u8") return x;
  return CODECS[dtype].values[CODECS[dtype].encode(x)];
}

/** Values to the bytes of a tensor. */
export function toBytes(dtype: DType, data: ArrayLike<number>): Uint8Array<ArrayBuffer> {
  const encoded = (codec: Codec) => new codec.array(Array.from(data, (x) => codec.encode(x)));
  const typed =
    dtype === "f32"
      ? Float32Array.from(data)
      : dtype === "i32"
        ? Int32Array.from(data)
        : dtype === "u8"
          ? Uint8Array.from(data)
          : encoded(CODECS[dtype]);
  return new Uint8Array(typed.buffer);
}

/** Bytes of a tensor to its values. */
export function fromBytes(dtype: DType, bytes: ArrayBuffer): Float64Array<ArrayBuffer> {
  if (dtype === "f32") return Float64Array.from(new Float32Array(bytes));
  if (dtype === "i32") return Float64Array.from(new Int32Array(bytes));
  if (dtype === "u8") return Float64Array.from(new Uint8Array(bytes));
  const codec = CODECS[dtype];
  return Float64Array.from(new codec.array(bytes), (code) => codec.values[code]);
}
