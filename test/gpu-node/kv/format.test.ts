import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import {
  KV_FORMATS,
  KV_LAYOUT_IDS,
  type KvGeometry,
  kvBytesPerToken,
  kvFormatCode,
  kvHeadsArgument,
  kvPageBytes,
  kvScales,
  PAGE_TOKENS,
} from "../../../gpu-node/kv/format.ts";
import { openDevice } from "../../../gpu-node/native/device.ts";

const GEOMETRIES: KvGeometry[] = [
  { kind: "mla", kvLora: 512, ropeDim: 64 },
  { kind: "mla", kvLora: 64, ropeDim: 16 },
  { kind: "gqa", kvHeads: 8, headDim: 128 },
  { kind: "gqa", kvHeads: 1, headDim: 24 },
];

test("page, row and scale sizes are those of the native side, and no other is accepted", () => {
  const device = openDevice({ backend: "reference" });
  try {
    for (const format of KV_FORMATS) {
      for (const geometry of GEOMETRIES) {
        const unpack = (pageBytes: number, scales: number) =>
          device.ops.kv_unpack({
            pool: device.alloc("u8", [2, pageBytes]),
            scales: scales > 0 ? device.alloc("f32", [2, PAGE_TOKENS, scales]) : null,
            slots: device.fromHost("i32", [1], Int32Array.of(100)),
            rows: device.alloc("u8", [1, kvBytesPerToken(format, geometry)]),
            format: kvFormatCode(format),
            heads: kvHeadsArgument(geometry),
          });
        const bytes = kvPageBytes(format, geometry);
        const scales = kvScales(format, geometry);
        const what = `${format} ${JSON.stringify(geometry)}`;
        assert.doesNotThrow(() => unpack(bytes, scales), what);
        assert.throws(() => unpack(bytes + PAGE_TOKENS, scales), /pool: must be/, what);
        assert.throws(() => unpack(bytes, scales + 1), /scales: /, what);
      }
    }
    device.sync();
  } finally {
    device.dispose();
  }
});

test("fp8 takes half of the bytes of bf16", () => {
  for (const geometry of GEOMETRIES) {
    assert.equal(2 * kvBytesPerToken("fp8", geometry), kvBytesPerToken("bf16", geometry));
  }
});

test("the layout ids are the native ones", () => {
  const nativeId = (file: string) => Number(/LayoutId = (\d+);/.exec(readFileSync(file, "utf8"))?.[1]);
  assert.deepEqual(KV_LAYOUT_IDS, {
    host: nativeId("native/core/kv_layout.h"),
    cuda: nativeId("native/cuda/kv_mla_layout.cuh"),
  });
});
