// The operator table: every native op with its arguments, in the order of its registration in native/ops/<op>/.
// A test compares this table with what the addon registers.
import type { Tensor } from "./addon.ts";

export type ArgKind = "in" | "out" | "inout" | "optional" | "number";

// T tokens, R rows, S sampled rows, H hidden, V vocabulary, h heads, D head dim, L kv_lora, E experts, k experts per
// token, I intermediate, P pages. act = f32 or bf16. Shapes and dtypes are stated in native/ops/<op>/op.h.
export const OP_TABLE = {
  // Elementwise and gathers
  embedding: { ids: "in", table: "in", out: "out" },
  gather_rows: { x: "in", index: "in", out: "out" },
  cast: { x: "in", out: "out" },
  add: { a: "inout", b: "in" },
  silu_mul: { gate: "in", up: "in", out: "out" },
  // Norms and rope
  rms_norm: { x: "in", weight: "in", out: "out", eps: "number" },
  add_rms_norm: { residual: "inout", x: "in", weight: "in", out: "out", eps: "number" },
  rope: { x: "inout", positions: "in", inv_freq: "in", interleaved: "number", scale: "number" },
  // Linear layers
  linear: { x: "in", w: "in", bias: "optional", out: "out" },
  linear_fp8: {
    x: "in",
    w: "in",
    scale: "in",
    bias: "optional",
    out: "out",
    block_n: "number",
    block_k: "number",
  },
  linear_int4: {
    x: "in",
    w: "in",
    scale: "in",
    zero: "optional",
    bias: "optional",
    out: "out",
    group: "number",
  },
  head_linear: { x: "in", w: "in", out: "out" },
  // Mixture of experts
  moe_route: {
    logits: "in",
    bias: "optional",
    ids: "out",
    weights: "out",
    scoring: "number",
    groups: "number",
    top_groups: "number",
    normalize: "number",
    scale: "number",
  },
  moe_gate_up: { x: "in", ids: "in", gate: "in", up: "in", out: "out" },
  moe_gate_up_fp8: {
    x: "in",
    ids: "in",
    gate: "in",
    gate_scale: "in",
    up: "in",
    up_scale: "in",
    out: "out",
    block_n: "number",
    block_k: "number",
  },
  moe_gate_up_int4: {
    x: "in",
    ids: "in",
    gate: "in",
    gate_scale: "in",
    gate_zero: "optional",
    up: "in",
    up_scale: "in",
    up_zero: "optional",
    out: "out",
    group: "number",
  },
  moe_down: { x: "in", ids: "in", weights: "in", down: "in", out: "out" },
  moe_down_fp8: {
    x: "in",
    ids: "in",
    weights: "in",
    down: "in",
    down_scale: "in",
    out: "out",
    block_n: "number",
    block_k: "number",
  },
  moe_down_int4: {
    x: "in",
    ids: "in",
    weights: "in",
    down: "in",
    down_scale: "in",
    down_zero: "optional",
    out: "out",
    group: "number",
  },
  // KV cache and attention
  kv_write_gqa: {
    k: "in",
    v: "in",
    pool: "inout",
    scales: "optional",
    write_slots: "in",
    stats: "inout",
    format: "number",
    k_scale: "number",
    v_scale: "number",
  },
  kv_write_mla: {
    latent: "in",
    pool: "inout",
    scales: "optional",
    write_slots: "in",
    stats: "inout",
    format: "number",
    scale: "number",
  },
  attention_gqa: {
    q: "in",
    k: "in",
    v: "in",
    pool: "in",
    scales: "optional",
    page_table: "in",
    row_slot: "in",
    row_start: "in",
    kv_len: "in",
    out: "out",
    softmax_scale: "number",
    format: "number",
    k_scale: "number",
    v_scale: "number",
    deterministic: "number",
  },
  attention_mla: {
    q: "in",
    latent: "in",
    pool: "in",
    scales: "optional",
    page_table: "in",
    row_slot: "in",
    row_start: "in",
    kv_len: "in",
    out: "out",
    softmax_scale: "number",
    format: "number",
    scale: "number",
    deterministic: "number",
  },
  attention_mla_expanded: {
    q: "in",
    latent: "in",
    kv_up: "in",
    pool: "in",
    scales: "optional",
    page_table: "in",
    row_slot: "in",
    row_start: "in",
    kv_len: "in",
    out: "out",
    softmax_scale: "number",
    format: "number",
    scale: "number",
  },
  kv_pack: { rows: "in", pool: "inout", scales: "optional", slots: "in", format: "number", heads: "number" },
  kv_unpack: { pool: "in", scales: "optional", slots: "in", rows: "out", format: "number", heads: "number" },
  // A step: the plan in, the sampled tokens out
  plan_expand: {
    plan: "in",
    page_table: "inout",
    history: "inout",
    params: "inout",
    bias_ids: "inout",
    bias_values: "inout",
    token_ids: "out",
    positions: "out",
    write_slots: "out",
    row_slot: "out",
    row_start: "out",
    kv_len: "out",
    logit_rows: "out",
    sample_rows: "out",
  },
  // KV integrity: around a step's forward pass when it is on
  tag_update: { updates: "in", secret: "in", pages: "inout", expected: "inout", slots: "inout" },
  page_tags: {
    plan: "in",
    page_table: "in",
    pages: "in",
    expected: "in",
    slots: "inout",
    row_start: "in",
    kv_len: "inout",
    write_slots: "inout",
    verdicts: "out",
  },
  tag_written: { write_slots: "in", pages: "inout" },
  sample: {
    logits: "inout",
    rows: "in",
    params: "in",
    bias_ids: "in",
    bias_values: "in",
    history: "inout",
    out: "out",
  },
} as const satisfies Record<string, Record<string, ArgKind>>;

export type OpName = keyof typeof OP_TABLE;

type ArgType<K extends ArgKind> = K extends "number" ? number : K extends "optional" ? Tensor | null : Tensor;

/** The named arguments of an op, as a call site writes them. */
export type OpArgs<N extends OpName> = {
  [A in keyof (typeof OP_TABLE)[N]]: (typeof OP_TABLE)[N][A] extends ArgKind
    ? ArgType<(typeof OP_TABLE)[N][A]>
    : never;
};

export type Ops = { [N in OpName]: (args: OpArgs<N>) => void };
