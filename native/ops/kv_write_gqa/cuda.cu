// A block stores one token: first it looks for NaNs in all vectors of the token, then every warp stores vectors.
#include "cuda/kv_gqa_layout.cuh"
#include "cuda/kv_quantize.cuh"
#include "cuda/launch.h"
#include "ops/kv_write_gqa/op.h"

namespace edgewise::cuda {
namespace {

constexpr int kThreads = 256;

template <class Act>
struct WriteArgs {
  const Act *k, *v;
  int64_t k_token, k_head, v_token, v_head;  // strides
  int heads, dim;
  uint8_t* pool;
  float* scales;  // fp8_token only
  const int32_t* slots;
  int64_t slot_count;
  int32_t* stats;
  float k_scale, v_scale;
};

template <KvFormat kFormat, class Act>
__global__ void __launch_bounds__(kThreads) write_kernel(WriteArgs<Act> a, GqaOrder order, Fault fault) {
  __shared__ float reduce[32];
  wait_for_previous_kernel();
  let_next_kernel_start();
  const int64_t token = blockIdx.x;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int32_t slot = a.slots[token];
  if (slot < 0 || slot >= a.slot_count) {
    if (slot != -1 && threadIdx.x == 0) raise(fault, FaultCode::bad_index, slot);
    return;
  }
  const auto vector_at = [&](int vector) {
    return vector < a.heads ? a.k + token * a.k_token + vector * a.k_head
                            : a.v + token * a.v_token + (vector - a.heads) * a.v_head;
  };
  float nan = 0;
  for (int vector = warp; vector < 2 * a.heads; vector += kThreads / 32) {
    const Act* x = vector_at(vector);
    for (int i = lane; i < a.dim; i += 32) {
      const float value = to_float(x[i]);
      nan += value != value ? 1.0f : 0.0f;
    }
  }
  nan = block_sum(nan, reduce);
  if (nan > 0) {
    if (threadIdx.x == 0) {
      atomicAdd(&a.stats[1], static_cast<int32_t>(nan));
      raise(fault, FaultCode::nan_input, static_cast<int32_t>(nan));
    }
    return;
  }
  uint8_t* page = a.pool + slot / kPageTokens * order.page_bytes();
  const int in_page = slot % kPageTokens;
  int saturated = 0;
  for (int vector = warp; vector < 2 * a.heads; vector += kThreads / 32) {
    const Act* x = vector_at(vector);
    const bool is_key = vector < a.heads;
    float scale = is_key ? a.k_scale : a.v_scale;
    if constexpr (kFormat == KvFormat::fp8_token) {
      scale = token_scale_of_warp(x, a.dim);
      if (lane == 0) a.scales[static_cast<int64_t>(slot) * 2 * a.heads + vector] = scale;
    }
    uint8_t* block = page + (is_key ? vector : vector - a.heads) * order.head_bytes();
    for (int i = lane; i < a.dim; i += 32) {
      const float value = to_float(x[i]);
      if constexpr (kFormat == KvFormat::f32) {
        *reinterpret_cast<float*>(block + (is_key ? order.key_offset(in_page, 4 * i) : order.value_offset(in_page, 4 * i))) =
            value;
      } else if constexpr (kFormat == KvFormat::bf16) {
        *reinterpret_cast<bf16*>(block + (is_key ? order.key_offset(in_page, 2 * i) : order.value_offset(in_page, 2 * i))) =
            from_float<bf16>(value);
      } else {
        block[is_key ? order.key_offset(in_page, i) : order.value_offset(in_page, i)] =
            quantize_e4m3<kFormat>(value, scale, saturated);
      }
    }
  }
  if constexpr (kFormat == KvFormat::fp8 || kFormat == KvFormat::fp8_token)
    if (saturated > 0) atomicAdd(&a.stats[0], saturated);
}

template <class Act>
void run(const KvWriteGqa& p, Context& context) {
  WriteArgs<Act> a;
  a.k = p.k.data<Act>();
  a.v = p.v.data<Act>();
  a.k_token = p.k.stride[0];
  a.k_head = p.k.stride[1];
  a.v_token = p.v.stride[0];
  a.v_head = p.v.stride[1];
  a.heads = static_cast<int>(p.k.shape[1]);
  a.dim = static_cast<int>(p.k.shape[2]);
  a.pool = p.pool.bytes.data<uint8_t>();
  a.scales = p.pool.scales.storage ? p.pool.scales.data<float>() : nullptr;
  a.slots = p.write_slots.data<int32_t>();
  a.slot_count = p.pool.pages() * kPageTokens;
  a.stats = p.stats.data<int32_t>();
  a.k_scale = p.k_scale;
  a.v_scale = p.v_scale;
  const Grid grid{.blocks = static_cast<unsigned>(p.k.shape[0]), .threads = kThreads, .dependent = true};
  const auto kernel = [&] {
    switch (p.pool.layout.format) {
      case KvFormat::f32: return write_kernel<KvFormat::f32, Act>;
      case KvFormat::bf16: return write_kernel<KvFormat::bf16, Act>;
      case KvFormat::fp8: return write_kernel<KvFormat::fp8, Act>;
      default: return write_kernel<KvFormat::fp8_token, Act>;
    }
  }();
  launch(context, kernel, grid, a, GqaOrder(p.pool.layout), fault_of(context));
}

void kv_write_gqa_cuda(const KvWriteGqa& p, Context& context) {
  if (p.k.dtype == DType::f32) run<float>(p, context);
  else run<bf16>(p, context);
}

EDGEWISE_CUDA_KERNEL(KvWriteGqa, kv_write_gqa_cuda);

}  // namespace
}  // namespace edgewise::cuda
