// Times a kernel as a decode step runs it: in a captured graph, over buffers that no cache holds, by the GPU's clock.
import type { OpDevice } from "../../native/device.ts";
import { median } from "../measure.ts";
import { type Accuracy, BenchMemory, type KernelShape, type RandomBlocks } from "./shape.ts";

/** Of one H200: bulk copies from memory, and the dense bf16 product on random data. */
export const BYTES_PER_SECOND = 4.69e12;
export const FLOP_PER_SECOND = 788e12;
export const L2_BYTES = 60e6;

export interface Method {
  replays: number;
  /** Calls in a graph, at least. */
  calls: number;
  /** Sets of buffers together take at least so much. */
  coldBytes: number;
}

export const METHOD: Method = { replays: 21, calls: 20, coldBytes: Math.max(200e6, 3 * L2_BYTES + 20e6) };
export const QUICK: Method = { ...METHOD, replays: 5 };

export interface Measured {
  group: string;
  shape: string;
  bytes: number;
  flops: number;
  floorUs: number;
  us: number;
  /** floor / measured */
  fraction: number;
  targetUs: number | null;
  peerUs: number | null;
  accuracy: Accuracy;
}

/** A graph long enough that its launch does not count: half a millisecond at the floor, 200 calls at most. */
const GRAPH_US = 500;
const MAX_CALLS = 200;

export function floorUs(bytes: number, flops: number): number {
  return 1e6 * Math.max(bytes / BYTES_PER_SECOND, flops / FLOP_PER_SECOND);
}

/** `device` is disposed by the caller, and with it all memory of the shape. */
export function measureShape(
  device: OpDevice,
  reference: OpDevice,
  shape: KernelShape,
  method: Method,
  random: RandomBlocks,
): Measured {
  const prepared = shape.prepare(new BenchMemory(device, random), method.coldBytes);
  const bytes = prepared.bytes ?? shape.bytes;
  const floor = floorUs(bytes, shape.flops);
  const wanted = Math.min(MAX_CALLS, Math.ceil(GRAPH_US / floor));
  const calls = Math.max(method.calls, prepared.copies, method === METHOD ? wanted : 0);
  const us = (1000 * timeGraph(device, (i) => prepared.call(i), calls, method.replays)) / calls;
  return {
    group: shape.group,
    shape: shape.name,
    bytes,
    flops: shape.flops,
    floorUs: floor,
    us,
    fraction: floor / us,
    targetUs: shape.targetUs ?? null,
    peerUs: shape.peerUs ?? null,
    accuracy: prepared.check(reference),
  };
}

/** Milliseconds of one replay of `calls` calls: the median. All replays are enqueued before the first is timed. */
export function timeGraph(
  device: OpDevice,
  call: (i: number) => void,
  calls: number,
  replays: number,
): number {
  call(0);
  device.sync();
  const graph = device.capture(() => {
    for (let i = 0; i < calls; i++) call(i);
  });
  graph.replay();
  device.sync();
  const marks = [device.timestamp()];
  for (let i = 0; i < replays; i++) {
    graph.replay();
    marks.push(device.timestamp());
  }
  const times = marks.slice(1).map((mark, i) => device.elapsed(marks[i], mark));
  graph.dispose();
  return median(times);
}
