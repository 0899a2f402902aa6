#include "cuda/elementwise.cuh"
#include "ops/silu_mul/op.h"

namespace edgewise::cuda {
namespace {

template <class In, class Out>
struct SiluTimes {
  Rows<const In> gate, up;
  Rows<Out> out;

  template <int kWidth>
  __device__ void run(int64_t row, int64_t column) const {
    float x[kWidth], factor[kWidth];
    load(gate[row] + column, x);
    load(up[row] + column, factor);
    for (int i = 0; i < kWidth; ++i) x[i] = x[i] / (1.0f + expf(-x[i])) * factor[i];
    store(out[row] + column, x);
  }
};

void silu_mul_cuda(const SiluMul& p, Context& context) {
  const bool vectors = has_vectors(p.gate) && has_vectors(p.up) && has_vectors(p.out);
  with_activation(p.gate.dtype, [&](auto in) {
    with_activation(p.out.dtype, [&](auto out) {
      using In = decltype(in);
      const SiluTimes<In, decltype(out)> op{rows_of<const In>(p.gate), rows_of<const In>(p.up), rows_of<decltype(out)>(p.out)};
      launch_elementwise(context, op, row_count(p.gate), row_width(p.gate), vectors);
    });
  });
}

EDGEWISE_CUDA_KERNEL(SiluMul, silu_mul_cuda);

}  // namespace
}  // namespace edgewise::cuda
