#include "ops/attention_gqa/cuda_prefill.cuh"

namespace edgewise::cuda {

template <>
void gqa_prefill<256>(const GqaArgs<bf16>& a, int least, const DeviceRows& rows, Context& context) {
  const PrefillArgs args = prefill_args(a, least);
  if (a.format == KvFormat::bf16) launch_prefill<GqaSource<bf16>, 256, 256>(args, GqaSource<bf16>{a}, rows, 0, context);
  else launch_prefill<GqaSource<e4m3>, 256, 256>(args, GqaSource<e4m3>{a}, rows, 0, context);
}

}  // namespace edgewise::cuda
