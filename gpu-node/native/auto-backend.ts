// What `backend=auto` means.
import type { Addon } from "./addon.ts";

/** CUDA where a GPU can run it, else the CPU. An emulated GPU has to be asked for. */
export function autoBackend(backends: ReturnType<Addon["backends"]>): "cuda" | "cpu" {
  const gpu = backends.find(({ name }) => name === "cuda");
  return gpu?.unavailable === null && !gpu.emulated ? "cuda" : "cpu";
}
