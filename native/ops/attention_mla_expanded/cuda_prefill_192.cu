#include "ops/attention_mla_expanded/cuda_prefill.cuh"

namespace edgewise::cuda {

template <>
bool expanded_prefill<192, 128>(const ExpandedArgs<bf16>& a, const DeviceRows& rows, Context& context) {
  if (a.format == KvFormat::bf16) return launch_expanded<bf16, 192, 128>(a, rows, context);
  return launch_expanded<e4m3, 192, 128>(a, rows, context);
}

}  // namespace edgewise::cuda
