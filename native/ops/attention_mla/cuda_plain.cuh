// Attention for every width, format and activation dtype, in f32: the fallback of cuda.cu, and what f32 activations use.
// One block per token and head walks its context in tiles of 64 positions, so that the bits of a token depend neither on
// the other rows nor on which part of its context is new. Reads every page once per head and token: not for speed.
#pragma once

#include "ops/attention_mla/cuda_args.cuh"

namespace edgewise::cuda {

constexpr int kPlainThreads = 128, kPlainTile = 64;
constexpr int kPlainOutputs = 2048 / kPlainThreads;  // of a thread, at the widest kv_lora

template <class Act>
struct PlainTensors {
  const Act *q, *latent;
  Act* out;
};

// A token of the context: its latent of this call, or its page.
template <class Act>
struct PlainToken {
  const Act* fresh;
  const uint8_t* page;
  int at;
  float scale;

  template <KvFormat kFormat>
  __device__ float value(const MlaPage& order, int column) const {
    if (fresh) return to_float(fresh[column]);
    const uint8_t* stored = page + order.offset(at, column);
    if constexpr (kFormat == KvFormat::f32) return *reinterpret_cast<const float*>(stored);
    else if constexpr (kFormat == KvFormat::bf16) return to_float(*reinterpret_cast<const bf16*>(stored));
    else return to_float(e4m3{*stored}) * scale;
  }
};

inline size_t plain_shared_bytes(int width) { return static_cast<size_t>(width) * sizeof(float); }

template <class Act, KvFormat kFormat>
__global__ void __launch_bounds__(kPlainThreads) attention_mla_plain_kernel(MlaArgs a, PlainTensors<Act> x, Fault fault) {
  __shared__ PlainToken<Act> tokens[kPlainTile];
  __shared__ float scores[kPlainTile];
  float* q = static_cast<float*>(dynamic_shared());
  wait_for_previous_kernel();
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const int token = blockIdx.x, head = blockIdx.y;

  const int r = a.rows.row_of(token);
  const DeviceRow row = r < 0 ? DeviceRow{} : a.rows.row(r, fault);
  if (token == 0 && head == 0) a.rows.check(fault);
  const Act* from = x.q + token * a.q_stride[0] + head * a.q_stride[1];
  for (int i = thread; i < a.width; i += kPlainThreads) q[i] = to_float(from[i]);
  __syncthreads();

  const int length = !row.live ? 0 : row.past + token - row.begin + 1;
  float most = -INFINITY, total = 0, sums[kPlainOutputs] = {};
  for (int first = 0; first < length; first += kPlainTile) {
    const int n = min(kPlainTile, length - first);
    if (thread < n) {
      const int position = first + thread;
      PlainToken<Act> t{};
      if (position >= row.past) t.fresh = x.latent + (row.begin + position - row.past) * a.latent_stride;
      else {
        const int page = a.rows.page(row, position / kPageTokens, fault);
        t.page = a.pool + page * a.page_bytes;
        t.at = position % kPageTokens;
        t.scale = a.scales ? a.scales[static_cast<int64_t>(page) * kPageTokens + t.at] : a.scale;
      }
      tokens[thread] = t;
    }
    __syncthreads();
    for (int k = warp; k < n; k += kPlainThreads / 32) {
      const PlainToken<Act> t = tokens[k];
      float dot = 0;
      for (int i = lane; i < a.width; i += 32) dot += q[i] * t.template value<kFormat>(a.page, i);
      dot = warp_sum(dot);
      if (lane == 0) scores[k] = dot * a.scale_log2;
    }
    __syncthreads();
    // Every warp computes the same: lane l has tokens l and l + 32 of the tile.
    const float low = lane < n ? scores[lane] : -INFINITY, high = lane + 32 < n ? scores[lane + 32] : -INFINITY;
    const float now = fmaxf(most, warp_max(fmaxf(low, high))), rescale = exp2_fast(most - now);
    const float p_low = exp2_fast(low - now), p_high = exp2_fast(high - now);
    total = total * rescale + warp_sum(p_low + p_high);
    most = now;
    __syncthreads();
    if (warp == 0) scores[lane] = p_low, scores[lane + 32] = p_high;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPlainOutputs; ++i) {
      const int column = thread + i * kPlainThreads;
      if (column >= a.L) break;
      float sum = sums[i] * rescale;
      for (int k = 0; k < n; ++k) sum += scores[k] * tokens[k].template value<kFormat>(a.page, column);
      sums[i] = sum;
    }
    __syncthreads();
  }

  Act* to = x.out + token * a.out_stride[0] + head * a.out_stride[1];
#pragma unroll
  for (int i = 0; i < kPlainOutputs; ++i)
    if (const int column = thread + i * kPlainThreads; column < a.L)
      to[column] = from_float<Act>(length == 0 ? 0.0f : sums[i] / total);
}

template <class Act>
void attention_mla_plain(const AttentionMla& p, const MlaArgs& args, Context& context) {
  const PlainTensors<Act> tensors{p.q.data<Act>(), p.latent.data<Act>(), p.out.data<Act>()};
  const auto run = [&](auto kernel) {
    const Grid grid{.blocks = dim3(args.tokens, args.heads), .threads = kPlainThreads,
                    .shared = plain_shared_bytes(args.width), .dependent = true};
    launch(context, kernel, grid, args, tensors, fault_of(context));
  };
  switch (p.pool.layout.format) {
    case KvFormat::f32: return run(attention_mla_plain_kernel<Act, KvFormat::f32>);
    case KvFormat::bf16: return run(attention_mla_plain_kernel<Act, KvFormat::bf16>);
    default: return run(attention_mla_plain_kernel<Act, KvFormat::fp8>);
  }
}

}  // namespace edgewise::cuda
