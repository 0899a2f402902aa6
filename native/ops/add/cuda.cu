#include "cuda/elementwise.cuh"
#include "ops/add/op.h"

namespace edgewise::cuda {
namespace {

template <class A, class B>
struct AddTo {
  Rows<A> a;
  Rows<B> b;

  template <int kWidth>
  __device__ void run(int64_t row, int64_t column) const {
    float sum[kWidth], term[kWidth];
    load(a[row] + column, sum);
    load(b[row] + column, term);
    for (int i = 0; i < kWidth; ++i) sum[i] += term[i];
    store(a[row] + column, sum);
  }
};

void add_cuda(const Add& p, Context& context) {
  with_activation(p.a.dtype, [&](auto a) {
    with_activation(p.b.dtype, [&](auto b) {
      const AddTo<decltype(a), decltype(b)> op{rows_of<decltype(a)>(p.a), rows_of<decltype(b)>(p.b)};
      launch_elementwise(context, op, p.rows, p.columns, has_vectors(p.a) && has_vectors(p.b));
    });
  });
}

EDGEWISE_CUDA_KERNEL(Add, add_cuda);

}  // namespace
}  // namespace edgewise::cuda
