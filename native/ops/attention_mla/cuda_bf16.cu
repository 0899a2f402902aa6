#include "ops/attention_mla/cuda_launch.cuh"
#include "ops/attention_mla/cuda_tile_bf16.cuh"

namespace edgewise::cuda {

const MlaDecodeFormat mla_decode_bf16{{launch_mla_decode<Bf16Tile<1>>, launch_mla_decode<Bf16Tile<2>>,
                                    launch_mla_decode<Bf16Tile<4>>, launch_mla_decode<Bf16Tile<8>>}};

}  // namespace edgewise::cuda
