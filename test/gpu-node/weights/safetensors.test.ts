import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { CheckpointError, type CheckpointErrorCode } from "../../../gpu-node/weights/errors.ts";
import { type ByteSource, readSafetensorsHeader } from "../../../gpu-node/weights/safetensors.ts";

/** A file in memory that fails the test when more is read than it has. */
function source(bytes: Uint8Array, claimed = bytes.length): ByteSource {
  return {
    bytes: claimed,
    read(begin, end) {
      assert.ok(
        begin >= 0 && begin <= end && end <= bytes.length,
        `read [${begin}, ${end}) of ${bytes.length}`,
      );
      return bytes.slice(begin, end);
    },
  };
}

function file(header: string | object, dataBytes: number, headerLength?: bigint): Uint8Array {
  const text = new TextEncoder().encode(typeof header === "string" ? header : JSON.stringify(header));
  const bytes = new Uint8Array(8 + text.length + dataBytes);
  new DataView(bytes.buffer).setBigUint64(0, headerLength ?? BigInt(text.length), true);
  bytes.set(text, 8);
  return bytes;
}

function refused(bytes: Uint8Array, code: CheckpointErrorCode, message: RegExp): void {
  assert.throws(
    () => readSafetensorsHeader(source(bytes), "f.safetensors"),
    (error) => {
      assert.ok(error instanceof CheckpointError, String(error));
      assert.equal(error.code, code);
      assert.match(error.message, message);
      return true;
    },
  );
}

const f32 = (shape: number[], begin: number, end: number) => ({
  dtype: "F32",
  shape,
  data_offsets: [begin, end],
});

test("tensors that tile the data are read with their place in the file", () => {
  const header = {
    __metadata__: { format: "pt" },
    b: f32([2, 3], 4, 28),
    a: f32([], 0, 4),
    none: f32([0], 28, 28),
  };
  const bytes = file(header, 28);
  const data = bytes.length - 28;
  const entries = readSafetensorsHeader(source(bytes), "f");
  assert.deepEqual(
    entries.map(({ name, begin, end }) => [name, begin - data, end - data]),
    [
      ["b", 4, 28],
      ["a", 0, 4],
      ["none", 28, 28],
    ],
  );
});

test("a file that ends early is refused wherever it ends", () => {
  const whole = file({ a: f32([4], 0, 16) }, 16);
  for (let length = 0; length < whole.length; length++) {
    assert.throws(
      () => readSafetensorsHeader(source(whole.slice(0, length)), "f"),
      CheckpointError,
      `${length} bytes`,
    );
  }
});

test("a header length of 2^63 is refused before anything of that size is read", () => {
  refused(file("{}", 0, 2n ** 63n), "header_too_large", /9223372036854775808/);
  refused(file("{}", 0, 2n ** 64n - 1n), "header_too_large", /above the limit/);
  refused(file("{}", 0, 1000n), "truncated", /1008/);
});

test("damaged and hostile headers get an error of their own kind that names the tensor", () => {
  refused(file("[1]", 0), "bad_header", /not a JSON object/);
  refused(file('{"a":', 0), "bad_header", /header/);
  refused(file({ a: 5 }, 0), "bad_header", /tensor a/);
  refused(file({ a: { ...f32([1], 0, 4), dtype: "F99" } }, 4), "unknown_dtype", /tensor a.*F99/);
  refused(file({ a: { ...f32([1], 0, 4), dtype: "toString" } }, 4), "unknown_dtype", /toString/);
  refused(file({ a: f32([-1], 0, 4) }, 4), "bad_header", /tensor a.*shape/);
  refused(file({ a: f32([1.5], 0, 4) }, 4), "bad_header", /tensor a.*shape/);
  refused(file({ a: f32([2 ** 31, 2 ** 31], 0, 4) }, 4), "shape_overflow", /tensor a/);
  refused(file({ a: f32([2 ** 52, 2 ** 52, 0], 0, 0) }, 0), "shape_overflow", /tensor a/);
  refused(file({ a: f32([2], 0, 4) }, 4), "size_mismatch", /tensor a/);
  refused(file({ a: f32([1], 0, 8) }, 4), "offsets_out_of_range", /tensor a/);
  refused(file({ a: f32([1], 4, 0) }, 4), "offsets_out_of_range", /tensor a/);
  refused(
    file('{"a":{"dtype":"F32","shape":[1],"data_offsets":[1e400,1e400]}}', 4),
    "bad_header",
    /data_offsets/,
  );
  refused(
    file({ a: f32([2], 0, 8), b: f32([2], 4, 12) }, 12),
    "offsets_overlap",
    /tensor b overlaps tensor a/,
  );
  refused(file({ a: f32([1], 0, 4), b: f32([1], 0, 4) }, 4), "offsets_overlap", /tensor/);
  refused(file({ a: f32([1], 0, 4), b: f32([1], 8, 12) }, 12), "hole_in_data", /4 bytes between tensor a/);
  refused(file({ a: f32([1], 4, 8) }, 8), "hole_in_data", /between the header and tensor a/);
  refused(file({ a: f32([1], 0, 4) }, 6), "hole_in_data", /2 bytes behind tensor a/);
  const one = '{"dtype":"F32","shape":[1],"data_offsets":[0,4]}';
  refused(file(`{"a":${one},"\\u0061":${one}}`, 4), "duplicate_tensor", /"a" appears twice/);
  refused(
    file(`{"a":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}}`, 4),
    "duplicate_tensor",
    /dtype/,
  );
  refused(Uint8Array.from([2, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe]), "bad_header", /header/);
});

test("a tensor may be named __proto__ or constructor", () => {
  const text =
    '{"__proto__":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"constructor":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}';
  assert.deepEqual(
    readSafetensorsHeader(source(file(text, 2)), "f").map((entry) => entry.name),
    ["__proto__", "constructor"],
  );
});

test("a header nested 100,000 deep is refused, not a stack overflow", () => {
  const deep = `{"a":${"[".repeat(100_000)}${"]".repeat(100_000)}}`;
  refused(file(deep, 0), "bad_header", /tensor a/);
});

test("any damage to a valid file gives a CheckpointError or the same tensors, never another exception", () => {
  const whole = file({ a: f32([2, 2], 0, 16), b: { dtype: "BF16", shape: [3], data_offsets: [16, 22] } }, 22);
  fc.assert(
    fc.property(fc.nat(whole.length - 1), fc.nat(255), (at, value) => {
      const damaged = whole.slice();
      damaged[at] = value;
      try {
        for (const entry of readSafetensorsHeader(source(damaged), "f")) assert.ok(entry.end <= whole.length);
      } catch (error) {
        assert.ok(error instanceof CheckpointError, String(error));
      }
    }),
    { numRuns: 2000 },
  );
});
