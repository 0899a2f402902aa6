#include "ops/attention_mla_expanded/cuda_prefill.cuh"

namespace edgewise::cuda {

template <>
bool expanded_prefill<256, 256>(const ExpandedArgs<bf16>& a, const DeviceRows& rows, Context& context) {
  if (a.format == KvFormat::bf16) return launch_expanded<bf16, 256, 256>(a, rows, context);
  return launch_expanded<e4m3, 256, 256>(a, rows, context);
}

}  // namespace edgewise::cuda
