// linear, linear_fp8, linear_int4, head_linear.
#include "cuda/cublaslt.h"
#include "ops/head_linear/op.h"
#include "ops/linear/op.h"
#include "ops/linear_common/cuda_stream.h"
#include "ops/linear_common/cuda_tiled.cuh"
#include "ops/linear_fp8/op.h"
#include "ops/linear_int4/op.h"

namespace edgewise::cuda {
namespace {

struct Call {
  Matrix w;
  Rows rows;
  Groups groups;
  DType x, out;
  const Tensor* bias;
};

template <class X, class Out>
void tiled_product(const Call& c, Context& context) {
  tiled::Product p{{c.w, {}}, c.rows, c.groups, c.bias->storage ? c.bias->raw() : nullptr, c.bias->dtype};
  tiled::product<1, X, Out>(context, p, ceil_div(c.groups.rows, tiled::kRows));
}

constexpr int kLargeRows = 64;  // more: prefill, where cuBLASLt is wanted

bool large_product(const Call& c, Context& context) {
  if (c.groups.groups != 1 || c.groups.rows <= kLargeRows || c.w.form != WeightForm::dense || c.w.dtype != DType::bf16 ||
      c.x != DType::bf16 || (c.bias->storage && c.bias->dtype != c.out))
    return false;
  return cublaslt_product(context, {c.rows.x, c.w.data, c.bias->storage ? c.bias->raw() : nullptr, c.rows.out, c.groups.rows,
                                    c.w.n, c.w.k, c.rows.x_token, c.rows.out_token, c.out == DType::f32});
}

void run(const Call& c, Context& context) {
  if (large_product(c, context)) return;
  if (stream::takes(c.w, c.x, c.rows)) return stream::linear(context, c.w, c.rows, c.groups, *c.bias, c.out);
  const bool out32 = c.out == DType::f32;
  if (c.x == DType::f32) return out32 ? tiled_product<float, float>(c, context) : tiled_product<float, bf16>(c, context);
  return out32 ? tiled_product<bf16, float>(c, context) : tiled_product<bf16, bf16>(c, context);
}

template <class P>
void linear_cuda(const P& p, Context& context) {
  const Rows rows{p.x.raw(), p.x.stride[0], 0, p.out.raw(), p.out.stride[0], 0, 1};
  run({matrix_of(p.w), rows, {1, static_cast<int>(p.x.shape[0])}, p.x.dtype, p.out.dtype, &p.bias}, context);
}

void head_linear_cuda(const HeadLinear& p, Context& context) {
  const auto heads = static_cast<int>(p.w.experts);
  const Rows rows{p.x.raw(), p.x.stride[0], p.x.stride[1], p.out.raw(), p.out.stride[0], p.out.stride[1], heads};
  const Tensor no_bias;
  run({matrix_of(p.w), rows, {heads, static_cast<int>(p.x.shape[0])}, p.x.dtype, p.out.dtype, &no_bias}, context);
}

EDGEWISE_CUDA_KERNEL(Linear, linear_cuda<Linear>);
EDGEWISE_CUDA_KERNEL(LinearFp8, linear_cuda<LinearFp8>);
EDGEWISE_CUDA_KERNEL(LinearInt4, linear_cuda<LinearInt4>);
EDGEWISE_CUDA_KERNEL(HeadLinear, head_linear_cuda);

}  // namespace
}  // namespace edgewise::cuda
