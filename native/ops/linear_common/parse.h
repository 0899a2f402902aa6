// Argument checks shared by the linear and expert ops. `rank` is 2 for one matrix, 3 for one per expert (or head).
#pragma once

#include <string>

#include "ops/linear_common/weights.h"

namespace edgewise {

namespace weights_detail {

inline Tensor dense(const Args& args, const char* name, std::initializer_list<DType> dtypes, int rank, int64_t e,
                    int64_t n, int64_t k) {
  return rank == 3 ? args.dense(name, dtypes, {e, n, k}) : args.dense(name, dtypes, {n, k});
}

inline void set_shape(Weights& w, const char* name, int rank) {
  if (w.data.shape[rank - 1] == 0) throw OpError(name, "must have at least one column, is " + w.data.describe());
  w.experts = rank == 3 ? w.data.shape[0] : 1;
  w.n = w.data.shape[rank - 2];
  w.k = w.data.shape[rank - 1];
}

}  // namespace weights_detail

inline Weights parse_dense(const Args& args, const char* name, int rank) {
  Weights w;
  w.form = WeightForm::dense;
  w.data = weights_detail::dense(args, name, {DType::bf16, DType::f16, DType::f32}, rank, -1, -1, -1);
  weights_detail::set_shape(w, name, rank);
  w.block_k = w.k;
  return w;
}

inline Weights parse_fp8(const Args& args, const char* name, const char* scale, int rank) {
  Weights w;
  w.form = WeightForm::fp8;
  w.block_n = args.integer("block_n", 1, 1 << 20);
  w.block_k = args.integer("block_k", 1, 1 << 20);
  w.data = weights_detail::dense(args, name, {DType::e4m3}, rank, -1, -1, -1);
  weights_detail::set_shape(w, name, rank);
  w.scale = weights_detail::dense(args, scale, {DType::f32}, rank, w.experts, (w.n + w.block_n - 1) / w.block_n,
                                  (w.k + w.block_k - 1) / w.block_k);
  return w;
}

inline Weights parse_int4(const Args& args, const char* name, const char* scale, const char* zero, int rank) {
  Weights w;
  w.form = WeightForm::int4;
  w.block_k = args.integer("group", 1, 1 << 20);
  w.data = weights_detail::dense(args, name, {DType::u8}, rank, -1, -1, -1);
  weights_detail::set_shape(w, name, rank);
  w.k *= 2;  // two codes per byte
  if (w.k % w.block_k != 0)
    throw OpError("group", "must divide K = " + std::to_string(w.k) + ", is " + std::to_string(w.block_k));
  const int64_t groups = w.k / w.block_k;
  w.scale = weights_detail::dense(args, scale, {DType::bf16, DType::f16, DType::f32}, rank, w.experts, w.n, groups);
  w.zero = rank == 3 ? args.optional(zero, {DType::u8}, {w.experts, w.n, groups})
                     : args.optional(zero, {DType::u8}, {w.n, groups});
  if (w.zero.storage && !w.zero.contiguous()) throw OpError(zero, "must be contiguous");
  return w;
}

// x [M, K], bias [N], out [M, N] around a parsed matrix.
struct LinearCall {
  Tensor x, bias, out;
  Weights w;
};

inline LinearCall parse_linear_call(const Args& args, const Weights& w) {
  LinearCall c;
  c.w = w;
  c.x = args.tensor("x", {DType::f32, DType::bf16}, {-1, w.k});
  c.bias = args.optional("bias", {DType::bf16, DType::f16, DType::f32}, {w.n});
  c.out = args.tensor("out", {DType::f32, DType::bf16}, {c.x.shape[0], w.n});
  return c;
}

// out [T, h, N] = x [T, h, K] . w [h, N, K]^T: one "expert" per head.
struct HeadLinear {
  Tensor x, out;
  Weights w;
};

inline HeadLinear parse_head_linear(const Args& args) {
  HeadLinear p;
  p.w = parse_dense(args, "w", 3);
  p.x = args.tensor("x", {DType::f32, DType::bf16}, {-1, p.w.experts, p.w.k});
  p.out = args.tensor("out", {DType::f32, DType::bf16}, {p.x.shape[0], p.w.experts, p.w.n});
  return p;
}

// out [T, k, I] = silu(x . gate_e) * (x . up_e) for e = ids [T, k].
struct GateUpCall {
  Tensor x, ids, out;
  Weights gate, up;
};

inline GateUpCall parse_gate_up_call(const Args& args, const Weights& gate, const Weights& up) {
  GateUpCall c;
  if (up.experts != gate.experts || up.n != gate.n || up.k != gate.k || up.data.dtype != gate.data.dtype)
    throw OpError("up", "must have the shape and dtype of gate, " + gate.data.describe() + ", is " + up.data.describe());
  c.gate = gate;
  c.up = up;
  c.x = args.tensor("x", {DType::f32, DType::bf16}, {-1, gate.k});
  c.ids = args.dense("ids", {DType::i32}, {c.x.shape[0], -1});
  c.out = args.tensor("out", {c.x.dtype}, {c.x.shape[0], c.ids.shape[1], gate.n});
  return c;
}

// out [T, N] = sum over j of weights [T, j] * (x [T, j, :] . down_e), e = ids [T, j], j ascending.
struct DownCall {
  Tensor x, ids, weights, out;
  Weights down;
};

inline DownCall parse_down_call(const Args& args, const Weights& down) {
  DownCall c;
  c.down = down;
  c.x = args.tensor("x", {DType::f32, DType::bf16}, {-1, -1, down.k});
  c.ids = args.dense("ids", {DType::i32}, {c.x.shape[0], c.x.shape[1]});
  c.weights = args.dense("weights", {DType::f32}, {c.x.shape[0], c.x.shape[1]});
  c.out = args.tensor("out", {DType::f32, DType::bf16}, {c.x.shape[0], down.n});
  return c;
}

}  // namespace edgewise
