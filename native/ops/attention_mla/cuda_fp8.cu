#include "ops/attention_mla/cuda_launch.cuh"
#include "ops/attention_mla/cuda_tile_fp8.cuh"

namespace edgewise::cuda {

const MlaDecodeFormat mla_decode_fp8{{launch_mla_decode<Fp8Tile<1, false>>, launch_mla_decode<Fp8Tile<2, false>>,
                                   launch_mla_decode<Fp8Tile<4, false>>, launch_mla_decode<Fp8Tile<8, false>>}};

}  // namespace edgewise::cuda
