#include "ops/attention_mla/cuda_launch.cuh"
#include "ops/attention_mla/cuda_tile_fp8.cuh"

namespace edgewise::cuda {

const MlaDecodeFormat mla_decode_fp8_token{{launch_mla_decode<Fp8Tile<1, true>>, launch_mla_decode<Fp8Tile<2, true>>,
                                   launch_mla_decode<Fp8Tile<4, true>>, launch_mla_decode<Fp8Tile<8, true>>}};

}  // namespace edgewise::cuda
