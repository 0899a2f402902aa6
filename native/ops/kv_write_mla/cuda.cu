// Bytes: the latent rows once, and what is stored. One block per token; a row stays in registers between its checks and
// its conversion.
#include "cuda/kv_mla_layout.cuh"
#include "cuda/launch.h"
#include "ops/kv_write_mla/op.h"

namespace edgewise::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kHeld = 5;  // elements of a thread in registers: rows of up to 640, as 512 + 64; longer ones are read again

struct WriteArgs {
  int64_t latent_stride, page_bytes, pages;
  uint8_t* pool;
  float* scales;
  const int32_t* slots;
  uint32_t* stats;  // saturated, NaN
  MlaPage page;
  KvFormat format;
  float scale;
};

__device__ bool finite(float x) { return fabsf(x) <= 3.402823466e38f; }

template <class Act>
__global__ void __launch_bounds__(kThreads) kv_write_mla_kernel(const Act* latent, WriteArgs p, Fault fault) {
  __shared__ float scratch[32];
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int64_t token = blockIdx.x;
  const int32_t slot = p.slots[token];
  if (slot < -1 || slot >= p.pages * kPageTokens) {
    if (threadIdx.x == 0) raise(fault, FaultCode::bad_index, slot);
    return;
  }
  if (slot < 0) return;
  const Act* row = latent + token * p.latent_stride;
  const int dim = p.page.dim;

  float held[kHeld], largest = 0, nan = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i) held[i] = 0;
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (const int c = threadIdx.x + i * kThreads; c < dim) held[i] = to_float(row[c]);
  const auto each = [&](auto visit) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
      if (const int c = threadIdx.x + i * kThreads; c < dim) visit(c, held[i]);
    for (int c = threadIdx.x + kHeld * kThreads; c < dim; c += kThreads) visit(c, to_float(row[c]));
  };
  each([&](int, float x) {
    nan += x != x;
    if (finite(x)) largest = fmaxf(largest, fabsf(x));
  });
  nan = block_sum(nan, scratch);
  if (nan > 0) {  // a poisoned cache must not go unnoticed: the token is not stored and the call fails
    if (threadIdx.x == 0) {
      atomicAdd(p.stats + 1, static_cast<uint32_t>(nan));
      raise(fault, FaultCode::nan_input, static_cast<int32_t>(nan));
    }
    return;
  }

  uint8_t* page = p.pool + slot / kPageTokens * p.page_bytes;
  const int at = slot % kPageTokens;
  if (p.format == KvFormat::f32)
    return each([&](int c, float x) { *reinterpret_cast<float*>(page + p.page.offset(at, c)) = x; });
  if (p.format == KvFormat::bf16)
    return each([&](int c, float x) { *reinterpret_cast<bf16*>(page + p.page.offset(at, c)) = from_float<bf16>(x); });

  // As core/kv_store.h, bit for bit.
  float scale = p.scale, limit = 448.0f;
  if (p.format == KvFormat::fp8_token) {
    largest = block_max(largest, scratch);
    scale = largest == 0 ? 1.0f : fmaxf(largest / 448.0f, 0x1p-126f);
    limit = 464.0f;
    if (threadIdx.x == 0) p.scales[slot] = scale;
  }
  float saturated = 0;
  each([&](int c, float x) {
    const float q = x / scale;
    saturated += fabsf(q) > limit;
    page[p.page.offset(at, c)] = from_float<e4m3>(q).bits;
  });
  saturated = block_sum(saturated, scratch);
  if (threadIdx.x == 0 && saturated > 0) atomicAdd(p.stats, static_cast<uint32_t>(saturated));
}

void kv_write_mla_cuda(const KvWriteMla& p, Context& context) {
  const KvLayout& layout = p.pool.layout;
  const WriteArgs args{p.latent.stride[0],
                       layout.page_bytes(),
                       p.pool.pages(),
                       p.pool.bytes.data<uint8_t>(),
                       layout.scaled_by_token() ? p.pool.scales.data<float>() : nullptr,
                       p.write_slots.data<int32_t>(),
                       reinterpret_cast<uint32_t*>(p.stats.data<int32_t>()),
                       mla_page(layout),
                       layout.format,
                       p.scale};
  const Grid grid{.blocks = static_cast<unsigned>(p.latent.shape[0]), .threads = kThreads, .dependent = true};
  if (p.latent.dtype == DType::f32)
    launch(context, kv_write_mla_kernel<float>, grid, p.latent.data<float>(), args, fault_of(context));
  else launch(context, kv_write_mla_kernel<bf16>, grid, p.latent.data<bf16>(), args, fault_of(context));
}

EDGEWISE_CUDA_KERNEL(KvWriteMla, kv_write_mla_cuda);

}  // namespace
}  // namespace edgewise::cuda
