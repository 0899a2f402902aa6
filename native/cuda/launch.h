// Launching a kernel from an op.
#pragma once

#include "core/op.h"
#include "cuda/device_code.cuh"
#include "cuda/status.h"

namespace edgewise::cuda {

inline cudaStream_t stream_of(const Context& context) { return static_cast<cudaStream_t>(context.stream()); }

// Streaming multiprocessors of the current GPU.
inline int sm_count() {
  int gpu = 0, count = 0;
  cuda_check(cudaGetDevice(&gpu), "cudaGetDevice");
  cuda_check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, gpu), "multiprocessor count");
  return count;
}

inline int ceil_div(int64_t a, int64_t b) { return static_cast<int>((a + b - 1) / b); }

struct Grid {
  dim3 blocks, threads;
  size_t shared = 0;         // bytes of dynamic shared memory
  bool dependent = false;    // may start before the previous kernel ends: it calls wait_for_previous_kernel()
};

// Does nothing for an empty grid. Throws what CUDA says about the launch; what goes wrong later shows in CudaDevice::wait.
template <class... P, class... A>
void launch(Context& context, void (*kernel)(P...), const Grid& grid, const A&... args) {
  if (grid.blocks.x == 0 || grid.blocks.y == 0 || grid.blocks.z == 0) return;
#ifdef EDGEWISE_CUDA_EMULATED
  emulator::launch(context.stream(), {__PRETTY_FUNCTION__, grid.blocks, grid.threads, grid.shared,
                                      [kernel, ... args = static_cast<P>(args)] { kernel(args...); }});
#else
  if (grid.shared > 48 << 10)
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared)),
          "shared memory");
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared;
  config.stream = stream_of(context);
  config.attrs = &dependent;
  config.numAttrs = grid.dependent ? 1 : 0;
  cuda_check(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...), "launch");
#endif
}

// The fault words of the device, with this op's index.
inline Fault fault_of(const Context& context) {
  return {static_cast<uint32_t*>(context.fault_words()), context.op_index()};
}

}  // namespace edgewise::cuda
