// The (token, slot) pairs of an expert op, grouped by expert on the device. The grid of what follows depends on shapes
// only: it has room for every list that ids can make.
#pragma once

#include "ops/linear_common/cuda_operands.cuh"

namespace edgewise::cuda {

struct RoutingList {
  Groups groups;
  int capacity;  // entries at most
};

// ids i32 [tokens, slots]: a pair is p = token * slots + slot. Entries hold at most `rows` pairs of one expert, the experts
// ascending, then come the pairs without one (-1). An id out of range is raised and counts as -1.
// Memory from context.scratch(). Defined in cuda_routing.cu.
RoutingList build_routing_list(Context& context, const Tensor& ids, int experts, int rows, int64_t first_token, int64_t tokens);

}  // namespace edgewise::cuda
