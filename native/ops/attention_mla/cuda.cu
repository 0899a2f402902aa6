#include <algorithm>

#include "ops/attention_mla/cuda_combine.cuh"
#include "ops/attention_mla/cuda_launch.cuh"
#include "ops/attention_mla/cuda_plain.cuh"
#include "ops/attention_mla/cuda_plan_kernel.cuh"

namespace edgewise::cuda {
namespace {

constexpr int kWindowColumns = 8192;  // bounds the memory of partial results; longer calls go through in parts
constexpr int kMaxPositionCuts = 16;  // deterministic: of the longest context

bool aligned(const Tensor& t, int64_t bytes) {
  const auto off = [&](int64_t elements) { return elements * static_cast<int64_t>(dtype_size(t.dtype)) % bytes; };
  if (reinterpret_cast<uintptr_t>(t.raw()) % bytes) return false;
  for (int i = 0; i + 1 < t.rank; ++i)
    if (t.shape[i] > 1 && off(t.stride[i])) return false;
  return true;
}

const MlaDecodeFormat* mla_decode_format(const AttentionMla& p) {
  if (p.q.dtype != DType::bf16 || p.latent_dim() != kLatent || p.width() != kWidth) return nullptr;
  if (!aligned(p.q, 16) || !aligned(p.latent, 8) || !aligned(p.out, 8) || !aligned(p.pool.bytes, 16)) return nullptr;
  switch (p.pool.layout.format) {
    case KvFormat::fp8: return &mla_decode_fp8;
    case KvFormat::fp8_token: return aligned(p.pool.scales, 16) ? &mla_decode_fp8_token : nullptr;
    // Stored and new tokens hold the same numbers here, and deterministic promises the same bits in a chunk of any length:
    // the plain kernel treats both alike. (With fp8 they differ, and the promise is about other rows alone.)
    case KvFormat::bf16: return p.deterministic ? nullptr : &mla_decode_bf16;
    default: return nullptr;
  }
}

void attention_mla_decode(const AttentionMla& p, const MlaArgs& args, const MlaDecodeFormat& format,
                          Context& context) {
  if (args.tokens == 0) return;
  // Columns per unit: those of an average row. Deterministic: of one token, whatever else is in the call.
  const int wanted = args.heads * (p.deterministic ? 1 : ceil_div(args.tokens, std::max(1, args.rows.rows)));
  const int size = wanted <= 8 ? 0 : wanted <= 16 ? 1 : wanted <= 32 ? 2 : 3;
  Window w{};
  w.columns = 8 << size;
  // 128 and not all 132: equal contexts of a power of two of rows are then cut at the ends of blocks.
  w.blocks = std::min(sm_count(), kMaxParts);
  w.deterministic = p.deterministic;
  w.chunk = p.deterministic ? std::max(8, ceil_div(args.rows.max_pages, kMaxPositionCuts)) : 1;

  const int window = std::min(args.tokens, std::max(1, kWindowColumns / args.heads));
  const int64_t units = int64_t{window} * args.heads / w.columns + std::min(window, args.rows.rows);
  const int64_t slots = p.deterministic ? units * kMaxPositionCuts : units + w.blocks;
  auto* memory = static_cast<uint8_t*>(nullptr);
  const auto layout = [&](int64_t& at, int64_t bytes) {
    uint8_t* here = memory + at;
    at += (bytes + 255) / 256 * 256;
    return here;
  };
  MlaPlan plan{};
  Partials partials{};
  const auto place = [&] {
    int64_t at = 0;
    plan.items = reinterpret_cast<int*>(layout(at, sizeof(int)));
    plan.rows = reinterpret_cast<RowWork*>(layout(at, args.rows.rows * static_cast<int64_t>(sizeof(RowWork))));
    plan.blocks = reinterpret_cast<BlockWork*>(layout(at, w.blocks * static_cast<int64_t>(sizeof(BlockWork))));
    plan.token_row = reinterpret_cast<int*>(layout(at, window * static_cast<int64_t>(sizeof(int))));
    partials.sums = reinterpret_cast<float2*>(layout(at, slots * w.columns * static_cast<int64_t>(sizeof(float2))));
    partials.values = reinterpret_cast<float*>(layout(at, slots * w.columns * int64_t{kLatent} * 4));
    return at;
  };
  const int64_t bytes = place();
  memory = static_cast<uint8_t*>(context.scratch(static_cast<size_t>(bytes)));
  place();

  const MlaTensors tensors{p.q.data<bf16>(), p.latent.data<bf16>(), p.out.data<bf16>()};
  for (w.first = 0; w.first < args.tokens; w.first = w.end) {
    w.end = std::min(args.tokens, w.first + window);
    launch(context, mla_plan_kernel, Grid{.blocks = 1, .threads = kPlanThreads, .dependent = true}, args, w, plan,
           fault_of(context));
    format.launch[size](p, args, w, plan, partials, context);
    // Few columns have many parts each: four ways side by side. Not when bits must not depend on the call.
    const bool wide = !p.deterministic && w.blocks > 4 * units;
    const dim3 blocks(args.heads, w.end - w.first);
    const Grid grid{.blocks = blocks, .threads = static_cast<unsigned>(kCombineThreads * (wide ? 4 : 1)), .dependent = true};
    launch(context, wide ? mla_combine_kernel<4> : mla_combine_kernel<1>, grid, args, w, plan, tensors, partials);
  }
}

void attention_mla_cuda(const AttentionMla& p, Context& context) {
  const MlaArgs args(p);
  if (const MlaDecodeFormat* format = mla_decode_format(p)) attention_mla_decode(p, args, *format, context);
  else if (p.q.dtype == DType::f32) attention_mla_plain<float>(p, args, context);
  else attention_mla_plain<bf16>(p, args, context);
}

EDGEWISE_CUDA_KERNEL(AttentionMla, attention_mla_cuda);

}  // namespace
}  // namespace edgewise::cuda
