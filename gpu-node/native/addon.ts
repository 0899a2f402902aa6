// What the native addon exports, typed. Loading it, and explaining why it did not load, is load.ts.

export type DType = "f32" | "bf16" | "f16" | "e4m3" | "i32" | "u8";

export type BackendName = "reference" | "cpu" | "cuda";

/** Instruction sets of the CPU kernels, each with the ones before it. */
export type Isa = "portable" | "avx2" | "avx512";

/** A strided window into device memory. The last dimension is contiguous. Views share storage and keep it alive. */
export interface Tensor {
  readonly dtype: DType;
  readonly shape: readonly number[];
  /** Same elements, other shape; the tensor must be contiguous. */
  reshape(shape: readonly number[]): Tensor;
  /** Elements [begin, end) of dimension `dim`, as a view. Narrowing the last dimension keeps the outer strides. */
  slice(dim: number, begin: number, end: number): Tensor;
  /** Splits the last dimension into `shape` (product equal); outer dimensions and strides stay. */
  splitLast(shape: readonly number[]): Tensor;
}

/** A read-only file mapping. Tensors made of it keep it alive; `close()` only drops this handle. */
export interface MappedFile {
  readonly bytes: number;
  /** Copies out bytes [begin, end), at most 256 MiB. */
  read(begin: number, end: number): Uint8Array;
  close(): void;
}

/** Memory for the intermediates of a step: bump-allocated, all of it released by `reset()`. */
export interface Arena {
  readonly bytes: number;
  readonly used: number;
  readonly peak: number;
  reset(): void;
}

/** A captured sequence of ops, replayed by one call on the same tensors. */
export interface Graph {
  readonly launches: number;
  replay(): void;
  dispose(): void;
}

/**
 * One backend with one in-order stream. Ops, uploads and replays are checked at once and enqueued; they run in order on
 * the stream. A kernel that fails (an index out of range, say) makes the next wait() or sync() throw, naming the op.
 */
export interface Device {
  readonly backend: BackendName;
  /** Instruction set of the CPU kernels, or the GPU's name. */
  readonly isa: string;
  readonly threads: number;
  /** Zeroed memory that lives until its last view is gone or the device is disposed. */
  alloc(dtype: DType, shape: readonly number[]): Tensor;
  /** As alloc, filled with `data` (exactly the tensor's bytes, little endian). */
  fromHost(dtype: DType, shape: readonly number[], data: ArrayBufferView): Tensor;
  /** A tensor over bytes of a mapped file: no copy on CPU backends when the address is aligned to the dtype. */
  fromFile(file: MappedFile, offset: number, dtype: DType, shape: readonly number[]): Tensor;
  arena(bytes: number): Arena;
  /** Makes `arena` the one that temp() takes from. */
  useArena(arena: Arena): void;
  /** Uninitialised memory from the current arena; throws when the arena is full, stating both sizes. */
  temp(dtype: DType, shape: readonly number[]): Tensor;
  /** Enqueues op `index` of ops() with its arguments in registration order. */
  run(index: number, args: readonly (Tensor | number | null)[]): void;
  /** Enqueues a copy of `data` into the tensor's first bytes (data is staged, the caller may reuse it at once). */
  upload(target: Tensor, data: ArrayBufferView): void;
  /** Waits for the stream and copies the tensor out. Refused during capture. */
  read(source: Tensor): ArrayBuffer;
  /**
   * Enqueues a copy of the tensor, as it is at this point of the stream, to the host. Returns a ticket, good for wait()
   * and once for receive(). Refused during capture.
   */
  download(source: Tensor): number;
  /** Waits as wait() does, then hands out the bytes of that download. */
  receive(ticket: number): ArrayBuffer;
  /**
   * Records the ops that `body` enqueues instead of running them. Inside, temp() and useArena() work; all
   * other allocation, upload, read, download, receive, record, wait, sync, replay and dispose are refused by name.
   */
  capture(body: () => void): Graph;
  /** Marks this point of the stream. */
  record(): number;
  /**
   * Blocks until the marked point is reached; throws the failure of an op before it. Ops enqueued between a failure and
   * the wait that throws it are skipped, and tickets among them throw it as well; a failure behind the ticket does not.
   */
  wait(ticket: number): void;
  sync(): void;
  /** Marks this point of the stream with the device's own clock, for elapsed(). Refused during capture. */
  timestamp(): number;
  /** Milliseconds between two timestamps; waits for both. */
  elapsed(from: number, to: number): number;
  /** Ops launched since the device was opened, graph nodes counted one by one. */
  readonly launches: number;
  dispose(): void;
}

export interface OpInfo {
  name: string;
  args: { name: string; kind: "in" | "out" | "inout" | "optional" | "number" }[];
  /** Backends that have a kernel of their own for it. */
  backends: BackendName[];
}

export interface DeviceOptions {
  backend: BackendName;
  /** CPU backend: threads including the stream's own; default all cores. */
  threads?: number;
  /** CPU backend: highest instruction set to use; default the best of this machine (or EDGEWISE_CPU_ISA). */
  isa?: Isa;
  /** CUDA backend: index of the GPU; default 0. */
  gpu?: number;
}

export interface Addon {
  readonly version: string;
  openDevice(options: DeviceOptions): Device;
  /**
   * Backends of this build, each with null or the reason why it can't be opened on this machine. `emulated`: its GPU is
   * this machine's CPU, which only tests want.
   */
  backends(): { name: BackendName; unavailable: string | null; emulated: boolean }[];
  ops(): OpInfo[];
  mapFile(path: string): MappedFile;
  /** Layout constants of the plan and results buffers as C++ sees them; a test compares them with engine/plan.ts. */
  planLayout(): Record<string, number>;
  /** The same of page tags, see kv/tag-layout.ts. */
  tagLayout(): Record<string, number>;
  /** Throws an error naming the first bad field of a plan. */
  validatePlan(plan: Int32Array, limits: Int32Array): void;
}
