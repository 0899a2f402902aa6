// The decode kernel of each format, launched from files that instantiate it.
#pragma once

#include "ops/attention_mla/cuda_decode.cuh"

namespace edgewise::cuda {

// The kernels of one format: `tiles` times 8 columns per unit, 1, 2, 4 or 8.
using MlaDecodeLauncher = void (*)(const AttentionMla& p, const MlaArgs& args, Window window, const MlaPlan& plan,
                                   const Partials& partials, Context& context);

struct MlaDecodeFormat {
  MlaDecodeLauncher launch[4];
};
extern const MlaDecodeFormat mla_decode_fp8, mla_decode_fp8_token, mla_decode_bf16;

template <class Tile>
void launch_mla_decode(const AttentionMla& p, const MlaArgs& args, Window window, const MlaPlan& plan,
                       const Partials& partials, Context& context) {
  const Grid grid{.blocks = static_cast<unsigned>(window.blocks), .threads = kDecodeThreads,
                  .shared = DecodeShared<Tile>::kBytes, .dependent = true};
  launch(context, mla_decode_kernel<Tile>, grid, args, window, plan, p.q.data<bf16>(), partials, fault_of(context));
}

}  // namespace edgewise::cuda
