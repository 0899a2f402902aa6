// linear, linear_fp8, linear_int4 and head_linear: gemm.h over the columns of one matrix, or of one per head.
#include "ops/linear_common/gemm.h"
#include "ops/linear_common/kernels.h"

namespace edgewise::EDGEWISE_ISA {

namespace {

EDGEWISE_INLINE float bias_at(const Tensor& bias, int64_t n) {
  if (bias.dtype == DType::f32) return row_of<float>(bias, 0)[n];
  if (bias.dtype == DType::bf16) return widen(row_of<bf16>(bias, 0)[n]);
  return widen(row_of<f16>(bias, 0)[n]);
}

template <class X>
void linear_typed(const LinearCall& p, Context& context) {
  const WeightView w = view_of(p.w);
  const int64_t count = p.x.shape[0], units = (w.n + kTileColumns - 1) / kTileColumns;
  if (count == 0 || w.n == 0) return;
  const size_t bytes = Workspace::bytes(w, 1);
  char* scratch = static_cast<char*>(context.scratch(bytes * static_cast<size_t>(context.workers())));
  const int64_t grain = grain_for(context, units, kTileColumns * w.k, static_cast<double>(count));
  const X* x = row_of<X>(p.x, 0);
  const int64_t x_stride = p.x.stride[0], out_stride = p.out.stride[0];
  context.parallel_for(units, grain, [&](int64_t begin, int64_t end, int worker) {
    const Workspace space(scratch + bytes * static_cast<size_t>(worker), w);
    const int64_t n1 = end * kTileColumns < w.n ? end * kTileColumns : w.n;
    multiply<X>(
        {w}, begin * kTileColumns, n1, count, space, [&](int64_t i) { return x + i * x_stride; },
        [&](int64_t m, int rows, int64_t n, int columns, float* v) {
          if (p.bias.storage)
            for (int j = 0; j < columns; ++j) {
              const float b = bias_at(p.bias, n + j);
              for (int i = 0; i < rows; ++i) v[i * kTileColumns + j] += b;
            }
          put_tile(p.out, m * out_stride + n, out_stride, rows, columns, v);
        });
  });
}

// Columns of one head that a unit of work takes.
constexpr int64_t kHeadColumns = 64;

template <class X>
void head_linear_typed(const HeadLinear& p, Context& context) {
  const WeightView shape = view_of(p.w);
  const int64_t tokens = p.x.shape[0], n = shape.n, chunks = (n + kHeadColumns - 1) / kHeadColumns;
  const int64_t units = chunks * p.w.experts;
  if (tokens == 0 || units == 0) return;
  const size_t bytes = Workspace::bytes(shape, 1);
  char* scratch = static_cast<char*>(context.scratch(bytes * static_cast<size_t>(context.workers())));
  const int64_t grain = grain_for(context, units, kHeadColumns * shape.k, static_cast<double>(tokens));
  context.parallel_for(units, grain, [&](int64_t begin, int64_t end, int worker) {
    const Workspace space(scratch + bytes * static_cast<size_t>(worker), shape);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t head = unit / chunks, n0 = unit % chunks * kHeadColumns;
      const X* x = row_of<X>(p.x, 0) + head * p.x.stride[1];
      multiply<X>(
          {view_of(p.w, head)}, n0, n0 + kHeadColumns < n ? n0 + kHeadColumns : n, tokens, space,
          [&](int64_t i) { return x + i * p.x.stride[0]; },
          [&](int64_t m, int rows, int64_t column, int columns, const float* v) {
            const int64_t at = m * p.out.stride[0] + head * p.out.stride[1] + column;
            put_tile(p.out, at, p.out.stride[0], rows, columns, v);
          });
    }
  });
}

}  // namespace

void run_linear(const LinearCall& p, Context& context) {
  if (p.x.dtype == DType::f32) linear_typed<float>(p, context);
  else linear_typed<bf16>(p, context);
}

void run_head_linear(const HeadLinear& p, Context& context) {
  if (p.x.dtype == DType::f32) head_linear_typed<float>(p, context);
  else head_linear_typed<bf16>(p, context);
}

}  // namespace edgewise::EDGEWISE_ISA
