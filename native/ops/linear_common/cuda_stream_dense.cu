#include "ops/linear_common/cuda_stream.cuh"

namespace edgewise::cuda::stream {

template <>
void launch_product<WeightForm::dense>(Context& context, const Product& p, int matrices, int tokens, dim3 blocks) {
  launch_product_of<WeightForm::dense>(context, p, matrices, tokens, blocks);
}

}  // namespace edgewise::cuda::stream
