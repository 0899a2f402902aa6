#include "cuda/elementwise.cuh"
#include "ops/cast/op.h"

namespace edgewise::cuda {
namespace {

template <class In, class Out>
struct CastTo {
  Rows<const In> x;
  Rows<Out> out;

  template <int kWidth>
  __device__ void run(int64_t row, int64_t column) const {
    float v[kWidth];
    load(x[row] + column, v);
    store(out[row] + column, v);
  }
};

void cast_cuda(const Cast& p, Context& context) {
  with_type(p.x.dtype, [&](auto in) {
    with_type(p.out.dtype, [&](auto out) {
      const CastTo<decltype(in), decltype(out)> op{rows_of<const decltype(in)>(p.x), rows_of<decltype(out)>(p.out)};
      launch_elementwise(context, op, row_count(p.x), row_width(p.x), has_vectors(p.x) && has_vectors(p.out));
    });
  });
}

EDGEWISE_CUDA_KERNEL(Cast, cast_cuda);

}  // namespace
}  // namespace edgewise::cuda
