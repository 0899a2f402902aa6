import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { bf16ToF32, E4M3_VALUES, f16ToF32, f32ToBf16 } from "../../../gpu-node/weights/numeric.ts";
import { decodeBf16, decodeE4m3, decodeF16 } from "../../ops/formats.ts";

const codes = Uint16Array.from({ length: 65536 }, (_, code) => code);

test("every code of every format has the value of its definition", () => {
  const bf16 = bf16ToF32(codes);
  const f16 = f16ToF32(codes);
  for (const code of codes) {
    assert.ok(Object.is(bf16[code], decodeBf16(code)), `bf16 ${code}: ${bf16[code]}`);
    assert.ok(Object.is(f16[code], decodeF16(code)), `f16 ${code}: ${f16[code]}`);
  }
  for (let code = 0; code < 256; code++)
    assert.ok(Object.is(E4M3_VALUES[code], decodeE4m3(code)), `e4m3 ${code}`);
});

test("float32 goes to the nearest bfloat16, ties to even, and a NaN stays one", () => {
  const finite = fc.float({
    noNaN: true,
    noDefaultInfinity: true,
    min: Math.fround(-3e38),
    max: Math.fround(3e38),
  });
  fc.assert(
    fc.property(finite, (value) => {
      const code = f32ToBf16(Float32Array.of(value))[0];
      const error = Math.abs(decodeBf16(code) - value);
      for (const next of [code - 1, code + 1]) {
        const other = Math.abs(decodeBf16(next & 0xffff) - value);
        assert.ok(!(other < error), `${value} to ${code}`);
        if (other === error) assert.equal(code % 2, 0, `${value}: a tie goes to the even code`);
      }
    }),
  );
  assert.ok(Number.isNaN(decodeBf16(f32ToBf16(Float32Array.of(Number.NaN))[0])));
  assert.equal(f32ToBf16(Float32Array.of(Number.POSITIVE_INFINITY))[0], 0x7f80);
});
