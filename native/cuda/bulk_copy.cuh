// Bulk copies from global to shared memory, and the barriers that they complete on (PTX ISA: mbarrier, cp.async.bulk).
#pragma once

#include "cuda/device_code.cuh"

namespace edgewise::cuda {

// In shared memory, 8-byte aligned.
//   phase 0 ends when `arrivals` threads have arrived and all announced bytes have landed; then phase 1, and so on
struct CopyBarrier {
#ifdef EDGEWISE_CUDA_EMULATED
  int16_t arrivals, arrived;
  int16_t phase;
  int16_t unused;
#else
  uint64_t state;
#endif
};

// By one thread; then fence_barrier_init() and a block barrier before any use.
__device__ inline void barrier_init(CopyBarrier* b, int arrivals) {
#ifdef EDGEWISE_CUDA_EMULATED
  *b = {static_cast<int16_t>(arrivals), 0, 0, 0};
#else
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
#endif
}

__device__ inline void fence_barrier_init() {
#ifndef EDGEWISE_CUDA_EMULATED
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}

__device__ inline void barrier_arrive(CopyBarrier* b) {
#ifdef EDGEWISE_CUDA_EMULATED
  if (++b->arrived == b->arrivals) b->arrived = 0, b->phase ^= 1;
#else
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(shared_address(b)) : "memory");
#endif
}

// Arrives, and adds `bytes` to what the phase waits for. The copies may start before or after.
// Emulated, copies are done when they start: announce before copying, and copy before anyone waits.
__device__ inline void barrier_arrive_expect(CopyBarrier* b, uint32_t bytes) {
#ifdef EDGEWISE_CUDA_EMULATED
  barrier_arrive(b);
#else
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1;\n}" ::"r"(shared_address(b)),
               "r"(bytes)
               : "memory");
#endif
}

// Until the phase of this parity (0, 1, 0, ..) has ended.
__device__ inline void barrier_wait(CopyBarrier* b, int parity) {
#ifdef EDGEWISE_CUDA_EMULATED
  while (b->phase == parity) emulator::yield();
#else
  asm volatile(
      "{\n.reg .pred done;\n"
      "wait: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra.uni ready;\nbra.uni wait;\nready:\n}" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
#endif
}

// `bytes` (a multiple of 16, both ends 16-byte aligned) to shared memory, by one thread; they count on `b`.
// evict_first: lines that nobody reads again leave the L2 first.
__device__ inline void bulk_copy(void* shared, const void* global, uint32_t bytes, CopyBarrier* b, bool evict_first = false) {
#ifdef EDGEWISE_CUDA_EMULATED
  std::memcpy(shared, global, bytes);
#else
  if (evict_first) {
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
            shared_address(shared)),
        "l"(global), "r"(bytes), "r"(shared_address(b)), "l"(policy)
        : "memory");
  } else {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(shared)),
                 "l"(global), "r"(bytes), "r"(shared_address(b))
                 : "memory");
  }
#endif
}

// Asks for the line of global memory at p in the L2 cache. Any address that is mapped.
__device__ inline void prefetch_l2(const void* p) {
#ifndef EDGEWISE_CUDA_EMULATED
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

// Orders ordinary accesses to shared memory by this thread before bulk copies that follow a barrier.
__device__ inline void fence_async_proxy() {
#ifndef EDGEWISE_CUDA_EMULATED
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace edgewise::cuda
