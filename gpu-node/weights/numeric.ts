// Conversions between stored number formats and float32. All inputs and outputs are little endian, as the host is.

/** bfloat16 -> float32: the upper half of its bits. */
export function bf16ToF32(values: Uint16Array): Float32Array {
  const bits = new Uint32Array(values.length);
  for (let i = 0; i < values.length; i++) bits[i] = values[i] << 16;
  return new Float32Array(bits.buffer);
}

/** float32 -> bfloat16, ties to even; a NaN stays a NaN. */
export function f32ToBf16(values: Float32Array): Uint16Array {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const out = new Uint16Array(values.length);
  for (let i = 0; i < values.length; i++) {
    const b = bits[i];
    const nan = (b & 0x7fffffff) > 0x7f800000;
    out[i] = nan ? (b >>> 16) | 0x40 : (b + 0x7fff + ((b >>> 16) & 1)) >>> 16;
  }
  return out;
}

/** IEEE binary16 -> float32. */
export function f16ToF32(values: Uint16Array): Float32Array {
  const out = new Float32Array(values.length);
  for (let i = 0; i < values.length; i++) {
    const exponent = (values[i] >>> 10) & 31;
    const fraction = values[i] & 1023;
    let magnitude: number;
    if (exponent === 31) magnitude = fraction ? Number.NaN : Number.POSITIVE_INFINITY;
    else if (exponent === 0) magnitude = fraction * 2 ** -24;
    else magnitude = (1 + fraction / 1024) * 2 ** (exponent - 15);
    out[i] = values[i] & 0x8000 ? -magnitude : magnitude;
  }
  return out;
}

/** The 256 values of float8 e4m3fn: no infinities, 0x7f and 0xff are NaN, largest 448. */
export const E4M3_VALUES: Float32Array = Float32Array.from({ length: 256 }, (_, code) => {
  const exponent = (code >>> 3) & 15;
  const fraction = code & 7;
  if (exponent === 15 && fraction === 7) return Number.NaN;
  const magnitude = exponent === 0 ? fraction * 2 ** -9 : (1 + fraction / 8) * 2 ** (exponent - 7);
  return code & 0x80 ? -magnitude : magnitude;
});

/** A copy that starts at an aligned address, as typed arrays of wider elements need. */
export function aligned(bytes: Uint8Array): ArrayBuffer {
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer;
}

/** Bytes of a stored BF16, F16 or F32 tensor -> float32. */
export function floatsOf(dtype: "BF16" | "F16" | "F32", bytes: Uint8Array): Float32Array {
  const buffer = aligned(bytes);
  if (dtype === "BF16") return bf16ToF32(new Uint16Array(buffer));
  if (dtype === "F16") return f16ToF32(new Uint16Array(buffer));
  return new Float32Array(buffer);
}
