// Words in device memory with which the blocks of a kernel find out which of them is the last. Zero when a kernel starts,
// and every kernel leaves them so. One set per device: kernels of a stream take turns.
#pragma once

#include "core/op.h"

namespace edgewise::cuda {

constexpr int kFaultWords = 64;  // in front of them in the same allocation (device_code.cuh: Fault)
constexpr int kCounters = 8192;
constexpr size_t kDeviceWordBytes = (kFaultWords + kCounters) * sizeof(uint32_t);

inline uint32_t* counters_of(const Context& context) { return static_cast<uint32_t*>(context.fault_words()) + kFaultWords; }

}  // namespace edgewise::cuda
