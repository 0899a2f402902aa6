#include "cuda/launch.h"
#include "ops/add/op.h"

namespace edgewise::cuda {
namespace {

constexpr int kThreads = 256;

template <class A, class B>
__global__ void add_kernel(A* a, int64_t a_stride, const B* b, int64_t b_stride, int64_t rows, int64_t columns) {
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= rows * columns) return;
  A& out = a[i / columns * a_stride + i % columns];
  out = from_float<A>(to_float(out) + to_float(b[i / columns * b_stride + i % columns]));
}

template <class A, class B>
void add(const Add& p, Context& context) {
  const Grid grid{.blocks = ceil_div(p.rows * p.columns, kThreads), .threads = kThreads, .dependent = true};
  launch(context, add_kernel<A, B>, grid, p.a.data<A>(), p.a.stride[0], p.b.data<B>(), p.b.stride[0], p.rows, p.columns);
}

void add_cuda(const Add& p, Context& context) {
  const bool a32 = p.a.dtype == DType::f32, b32 = p.b.dtype == DType::f32;
  if (a32) return b32 ? add<float, float>(p, context) : add<float, bf16>(p, context);
  return b32 ? add<bf16, float>(p, context) : add<bf16, bf16>(p, context);
}

EDGEWISE_CUDA_KERNEL(Add, add_cuda);

}  // namespace
}  // namespace edgewise::cuda
