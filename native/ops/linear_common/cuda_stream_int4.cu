#include "ops/linear_common/cuda_stream.cuh"

namespace edgewise::cuda::stream {

template <>
void launch_product<WeightForm::int4>(Context& context, const Product& p, int matrices, int tokens, dim3 blocks) {
  launch_product_of<WeightForm::int4>(context, p, matrices, tokens, blocks);
}

}  // namespace edgewise::cuda::stream
