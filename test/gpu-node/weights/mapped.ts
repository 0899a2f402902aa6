// A file mapping without the addon, for tests that need no device.
import { readFileSync } from "node:fs";
import type { MapFile } from "../../../gpu-node/weights/checkpoint.ts";

export const mapInMemory: MapFile = (path) => {
  const bytes = new Uint8Array(readFileSync(path));
  return { bytes: bytes.length, read: (begin, end) => bytes.slice(begin, end), close: () => {} };
};
