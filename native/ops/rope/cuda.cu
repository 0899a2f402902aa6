// A block rotates some heads of one token. It forms the cosines and sines once, in shared memory, by the full-range
// sincosf: the fast one is wrong by more than a rounding already at the angle 1, this one holds at a million.
// Bound by memory: every element is read and written once.
#include "cuda/launch.h"
#include "cuda/rows.cuh"
#include "ops/rope/op.h"

namespace edgewise::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kPerThread = 4;  // vectors of each half, or twice as many pairs: enough to pay for the table

struct Angles {
  const int32_t* positions;
  const float* inv_freq;
  float scale;
};

// x[0 .. kWidth) and x[half ..] are the two parts of kWidth pairs.
template <int kWidth, class T>
__device__ void rotate_halves(T* x, int half, const float* cosine, const float* sine) {
  float a[kWidth], b[kWidth];
  load(x, a);
  load(x + half, b);
  for (int i = 0; i < kWidth; ++i) {
    const float first = a[i];
    a[i] = first * cosine[i] - b[i] * sine[i];
    b[i] = b[i] * cosine[i] + first * sine[i];
  }
  store(x, a);
  store(x + half, b);
}

// Four pairs that lie together, or one.
template <int kWidth, class T>
__device__ void rotate_pairs(T* x, const float* cosine, const float* sine) {
  if constexpr (kWidth == 1) {
    const float a = to_float(x[0]), b = to_float(x[1]);
    x[0] = from_float<T>(a * cosine[0] - b * sine[0]);
    x[1] = from_float<T>(b * cosine[0] + a * sine[0]);
  } else {
    float v[kWidth];
    load(x, v);
    for (int i = 0; i < kWidth / 2; ++i) {
      const float a = v[2 * i], b = v[2 * i + 1];
      v[2 * i] = a * cosine[i] - b * sine[i];
      v[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
    store(x, v);
  }
}

// Blocks: tokens, then groups of `heads_per_block` heads. Dynamic shared memory: 2 * half floats.
template <int kWidth, bool kInterleaved, class T>
__global__ void __launch_bounds__(kThreads)
    rope_kernel(T* x, int64_t token_stride, int64_t head_stride, int heads, int half, int heads_per_block, Angles angles) {
  float* cosine = static_cast<float*>(dynamic_shared());
  float* sine = cosine + half;
  wait_for_previous_kernel();
  let_next_kernel_start();
  const float position = static_cast<float>(angles.positions[blockIdx.x]);
  for (int i = threadIdx.x; i < half; i += kThreads) {
    float s, c;
    sincosf(__fmul_rn(position, angles.inv_freq[i]), &s, &c);
    cosine[i] = c * angles.scale;
    sine[i] = s * angles.scale;
  }
  __syncthreads();
  constexpr int kPairs = kInterleaved && kWidth > 1 ? kWidth / 2 : kWidth;  // per thread at a time
  const int pieces = half / kPairs;
  const int first = blockIdx.y * heads_per_block, count = min(heads_per_block, heads - first);
  for (int i = threadIdx.x; i < count * pieces; i += kThreads) {
    const int pair = i % pieces * kPairs;
    T* head = x + blockIdx.x * token_stride + (first + i / pieces) * head_stride;
    if constexpr (kInterleaved) rotate_pairs<kWidth>(head + 2 * pair, cosine + pair, sine + pair);
    else rotate_halves<kWidth>(head + pair, half, cosine + pair, sine + pair);
  }
}

template <int kWidth, bool kInterleaved, class T>
void rope(const Rope& p, Context& context) {
  const int heads = static_cast<int>(p.x.shape[1]), half = static_cast<int>(p.x.shape[2] / 2);
  if (half == 0) return;
  const int per_block = std::max(1, kThreads * kPerThread * kWidth / half);
  const Grid grid{.blocks = {static_cast<unsigned>(p.x.shape[0]), static_cast<unsigned>(ceil_div(heads, per_block))},
                  .threads = kThreads,
                  .shared = 2 * half * sizeof(float),
                  .dependent = true};
  launch(context, rope_kernel<kWidth, kInterleaved, T>, grid, p.x.data<T>(), p.x.stride[0], p.x.stride[1], heads, half,
         per_block, Angles{p.positions.data<int32_t>(), p.inv_freq.data<float>(), p.scale});
}

template <class T>
void rope_of(const Rope& p, Context& context) {
  // Halves start at vectors too.
  const bool vectors = has_vectors(p.x) && (p.interleaved || p.x.shape[2] % (2 * kVector) == 0);
  if (p.interleaved) return vectors ? rope<kVector, true, T>(p, context) : rope<1, true, T>(p, context);
  vectors ? rope<kVector, false, T>(p, context) : rope<1, false, T>(p, context);
}

void rope_cuda(const Rope& p, Context& context) {
  p.x.dtype == DType::f32 ? rope_of<float>(p, context) : rope_of<bf16>(p, context);
}

EDGEWISE_CUDA_KERNEL(Rope, rope_cuda);

}  // namespace
}  // namespace edgewise::cuda
