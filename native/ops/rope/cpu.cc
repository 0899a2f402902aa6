#include "core/fast_math.h"
#include "core/float.h"
#include "core/rows.h"
#include "ops/rope/op.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

// cos and sin of one token's angles, shared by its heads.
void fill_table(const Rope& p, int64_t token, float* cosine, float* sine) {
  const int64_t half = p.x.shape[2] / 2;
  const float position = static_cast<float>(p.positions.data<int32_t>()[token * p.positions.stride[0]]);
  const float* inv_freq = p.inv_freq.data<float>();
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    float s, c;
    fast_sincos(position * inv_freq[i], s, c);
    cosine[i] = c * p.scale;
    sine[i] = s * p.scale;
  }
}

template <class T>
void rotate_halves(T* x, const float* cosine, const float* sine, int64_t half) {
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    const float a = to_f32(x[i]), b = to_f32(x[i + half]);
    x[i] = from_f32<T>(a * cosine[i] - b * sine[i]);
    x[i + half] = from_f32<T>(b * cosine[i] + a * sine[i]);
  }
}

template <class T>
void rotate_pairs(T* x, const float* cosine, const float* sine, int64_t half) {
#pragma GCC ivdep
  for (int64_t i = 0; i < half; ++i) {
    const float a = to_f32(x[2 * i]), b = to_f32(x[2 * i + 1]);
    x[2 * i] = from_f32<T>(a * cosine[i] - b * sine[i]);
    x[2 * i + 1] = from_f32<T>(b * cosine[i] + a * sine[i]);
  }
}

template <class T>
void rope_tokens(const Rope& p, Context& context) {
  const int64_t heads = p.x.shape[1], half = p.x.shape[2] / 2;
  float* tables = static_cast<float*>(context.scratch(static_cast<size_t>(context.workers() * 2 * half) * sizeof(float)));
  context.parallel_for(p.x.shape[0], row_grain((heads + 4) * 2 * half), [&](int64_t begin, int64_t end, int worker) {
    float* cosine = tables + worker * 2 * half;
    float* sine = cosine + half;
    for (int64_t t = begin; t < end; ++t) {
      fill_table(p, t, cosine, sine);
      for (int64_t h = 0; h < heads; ++h) {
        T* x = p.x.data<T>() + t * p.x.stride[0] + h * p.x.stride[1];
        p.interleaved ? rotate_pairs(x, cosine, sine, half) : rotate_halves(x, cosine, sine, half);
      }
    }
  });
}

void rope_cpu(const Rope& p, Context& context) {
  p.x.dtype == DType::f32 ? rope_tokens<float>(p, context) : rope_tokens<bf16>(p, context);
}

EDGEWISE_CPU_KERNEL(Rope, rope_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
