// The shapes that `edgewise bench gpu` measures, with the times to reach and those of the best public kernel.
//
// Peers: FlashMLA (FP8: vLLM's fork 46d64a8; bf16: 9241ae3) and FlashInfer fb28d72 for MLA, XQA (FP8) and the best of
// FA3 and FlashInfer (bf16) for GQA, Humming a6455de for INT4 and MoE, cuBLAS for bf16; measured on one H200 in graph
// replay over cold buffers on 2026-11-29, the method of measure.ts. They are context, not part of a run.
import { attentionShape } from "./attention.ts";
import { type Form, linearShape } from "./linear.ts";
import { moeShape } from "./moe.ts";
import type { KernelShape } from "./shape.ts";
import { kvWriteShape, normShape, routeShape, sampleShape, siluShape } from "./small.ts";

const K = 1024;
const MLA = { kind: "mla", kvLora: 512, ropeDim: 64 } as const;

/** batch, context, target us, peer us (0: none) */
type Row = [number, number, number, number];

function mla(heads: number, format: "fp8" | "bf16" | "fp8-token", rows: Row[]): KernelShape[] {
  return rows.map(([batch, context, targetUs, peerUs]) =>
    attentionShape({ batch, context, heads, geometry: MLA, format, ...known(targetUs, peerUs) }),
  );
}

function gqa(heads: number, kvHeads: number, format: "fp8" | "bf16", rows: Row[]): KernelShape[] {
  const geometry = { kind: "gqa", kvHeads, headDim: 128 } as const;
  return rows.map(([batch, context, targetUs, peerUs]) =>
    attentionShape({ batch, context, heads, geometry, format, ...known(targetUs, peerUs) }),
  );
}

/** tokens, target us, peer us (0: none) */
function linears(form: Form, n: number, k: number, rows: [number, number, number][]): KernelShape[] {
  return rows.map(([m, targetUs, peerUs]) => linearShape({ form, m, n, k, ...known(targetUs, peerUs) }));
}

function known(targetUs: number, peerUs: number) {
  return { ...(targetUs ? { targetUs } : {}), ...(peerUs ? { peerUs } : {}) };
}

const INT4: Form = { kind: "int4", group: 128 };
const INT4_32: Form = { kind: "int4", group: 32 };
const FP8: Form = { kind: "fp8" };
const BF16: Form = { kind: "bf16" };
const KIMI = { label: "kimi", form: { kind: "int4", group: 32 }, experts: 384, hidden: 7168 } as const;
const GLM = { label: "glm", form: { kind: "int4", group: 128 }, experts: 256, hidden: 6144 } as const;
const EXPERT = { perToken: 8, inner: 256 };

export function targetShapes(): KernelShape[] {
  return [
    ...mla(8, "fp8", [
      [1, 8 * K, 5.5, 14.2],
      [8, 8 * K, 12.5, 24.5],
      [16, 8 * K, 21, 37.5],
      [32, 8 * K, 38, 62],
      [64, 8 * K, 71, 112],
      [64, 32 * K, 270, 444],
    ]),
    ...mla(16, "fp8", [
      [1, 8 * K, 6.5, 15.3],
      [8, 8 * K, 14, 25],
      [16, 8 * K, 22.5, 37.8],
      [32, 8 * K, 40, 62.6],
      [64, 8 * K, 76, 112],
      [64, 32 * K, 290, 450],
    ]),
    ...mla(64, "fp8", [
      [8, 8 * K, 20, 29.9],
      [32, 8 * K, 60, 69.2],
      [64, 8 * K, 112, 121.9],
    ]),
    ...mla(128, "fp8", [
      [32, 8 * K, 115, 117],
      [64, 8 * K, 215, 216],
    ]),
    ...mla(8, "fp8-token", [[64, 8 * K, 0, 0]]),
    ...mla(8, "bf16", [
      [8, 8 * K, 30.5, 30.5],
      [16, 8 * K, 46.6, 46.6],
      [32, 8 * K, 78.3, 78.3],
      [64, 8 * K, 146, 146],
      [64, 32 * K, 557, 557],
    ]),
    ...gqa(12, 1, "fp8", [
      [8, 8 * K, 8.5, 16.2],
      [64, 8 * K, 36, 52.5],
      [8, 32 * K, 21, 42],
    ]),
    ...gqa(12, 1, "bf16", [
      [8, 8 * K, 12, 17.6],
      [64, 8 * K, 68, 71.5],
      [8, 32 * K, 37, 42],
    ]),
    ...gqa(32, 8, "fp8", [
      [1, 8 * K, 8.5, 14.7],
      [8, 8 * K, 36, 49.5],
      [64, 8 * K, 258, 301],
      [8, 32 * K, 132, 185],
    ]),
    ...gqa(32, 8, "bf16", [
      [1, 8 * K, 12, 17.1],
      [8, 8 * K, 68, 71.5],
      [64, 8 * K, 478, 476],
      [8, 32 * K, 247, 247],
    ]),
    ...linears(INT4, 8192, 8192, [
      [1, 10.3, 16.4],
      [16, 10.3, 17.2],
      [32, 11, 19.5],
      [64, 15, 24.3],
      [128, 27, 32.5],
      [256, 50, 50],
    ]),
    ...linears(INT4, 28672, 8192, [
      [1, 31, 42.4],
      [16, 31, 45],
      [64, 48, 67.7],
      [256, 180, 195],
    ]),
    ...linears(INT4, 20480, 7168, [
      [1, 20, 29.3],
      [16, 20, 31.3],
    ]),
    ...linears(INT4, 2112, 7168, [
      [1, 5, 9.3],
      [16, 5, 9.7],
    ]),
    ...linears(INT4, 6144, 2048, [
      [1, 4, 9.4],
      [16, 4, 9.9],
    ]),
    ...linears(INT4_32, 8192, 8192, [
      [1, 0, 0],
      [16, 0, 0],
    ]),
    ...moes(KIMI, [
      [1, 12, 25],
      [4, 29, 56.9],
      [8, 50, 97.4],
      [16, 87, 163],
      [32, 144, 266],
      [64, 215, 394],
    ]),
    ...moes(GLM, [
      [1, 10.5, 24.8],
      [4, 24, 50.8],
      [8, 40, 83.4],
      [16, 64, 132],
      [32, 102, 205],
      [64, 137, 274],
    ]),
    ...moes({ ...KIMI, form: { kind: "fp8" } }, [
      [16, 0, 0],
      [64, 0, 0],
    ]),
    ...linears(FP8, 8192, 8192, [
      [1, 0, 0],
      [16, 0, 0],
      [64, 0, 0],
      [4096, 0, 0],
    ]),
    // Qwen3-8B: qkv, output, gate or up, down, head.
    ...linears(BF16, 8192, 8192, [
      [1, 0, 33.7],
      [16, 0, 33.7],
      [64, 0, 37],
      [256, 0, 50],
      [4096, 0, 0],
    ]),
    ...[
      [6144, 4096],
      [4096, 4096],
      [12288, 4096],
      [4096, 12288],
      [151936, 4096],
    ].flatMap(([n, k]) =>
      linears(BF16, n, k, [
        [1, 0, 0],
        [16, 0, 0],
        [64, 0, 0],
      ]),
    ),
    ...[1, 64].flatMap((rows) => [sampleShape(rows, 163840), sampleShape(rows, 151936)]),
    ...[1, 64].flatMap((tokens) => [
      normShape(tokens, 7168),
      siluShape(tokens, 12288),
      routeShape(tokens, 384, 8),
      kvWriteShape(tokens, MLA),
    ]),
  ];
}

function moes(
  model: Omit<Parameters<typeof moeShape>[0], "tokens" | keyof typeof EXPERT>,
  rows: [number, number, number][],
): KernelShape[] {
  return rows.map(([tokens, targetUs, peerUs]) =>
    moeShape({ ...model, ...EXPERT, tokens, ...known(targetUs, peerUs) }),
  );
}

/** One small shape of every kind: they check the tool on any machine, and say nothing about one. */
export function tinyShapes(): KernelShape[] {
  const small = { kind: "mla", kvLora: 64, ropeDim: 16 } as const;
  const grouped = { kind: "gqa", kvHeads: 2, headDim: 64 } as const;
  const load = { batch: 2, context: 100, heads: 4 };
  const experts = { perToken: 2, inner: 64, experts: 4, hidden: 128, tokens: 3 };
  return [
    ...(["fp8", "fp8-token", "bf16"] as const).flatMap((format) => [
      attentionShape({ ...load, geometry: small, format }),
      attentionShape({ ...load, geometry: grouped, format }),
    ]),
    ...[BF16, FP8, { kind: "int4", group: 32 } as const].map((form) =>
      linearShape({ form, m: 3, n: 96, k: 128 }),
    ),
    moeShape({ ...experts, label: "tiny", form: { kind: "int4", group: 32 } }),
    moeShape({ ...experts, label: "tiny", form: { kind: "fp8" } }),
    sampleShape(2, 500),
    normShape(2, 64),
    siluShape(2, 64),
    routeShape(2, 16, 4),
    kvWriteShape(3, small),
  ];
}
