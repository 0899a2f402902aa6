#include "ops/attention_gqa/cuda_decode_kernel.cuh"

namespace edgewise::cuda {

template <>
void gqa_decode<256>(const GqaArgs<bf16>& a, const DeviceRows& rows, Context& context) {
  if (a.format == KvFormat::bf16) launch_decode<bf16, 256, false>(a, rows, context);
  else if (a.format == KvFormat::fp8) launch_decode<e4m3, 256, false>(a, rows, context);
  else launch_decode<e4m3, 256, true>(a, rows, context);
}

}  // namespace edgewise::cuda
