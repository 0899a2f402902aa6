// What every kernel starts from: conversions, reductions, and the few instructions that CUDA C++ has no name for. Each of
// the latter has an emulated twin beside it (see emulator/cuda_runtime.h), so a kernel itself never asks where it runs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/float.h"

#ifndef EDGEWISE_CUDA_EMULATED
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif

namespace edgewise::cuda {

constexpr unsigned kAllLanes = 0xffffffffu;

// --- Numbers. f16x2 is two f16 in 32 bits, the first in the low half; so is bf16x2. ---------------------------------

#ifdef EDGEWISE_CUDA_EMULATED
template <class T>
float to_float(T v) { return to_f32(v); }
template <class T>
T from_float(float v) { return from_f32<T>(v); }
inline uint32_t pack_f16x2(float low, float high) { return f32_to_f16(low) | static_cast<uint32_t>(f32_to_f16(high)) << 16; }
inline uint32_t pack_bf16x2(float low, float high) { return f32_to_bf16(low) | static_cast<uint32_t>(f32_to_bf16(high)) << 16; }
inline float2 unpack_f16x2(uint32_t v) { return {f16_to_f32(v & 0xffffu), f16_to_f32(v >> 16)}; }
inline float2 unpack_bf16x2(uint32_t v) { return {bf16_to_f32(v & 0xffffu), bf16_to_f32(v >> 16)}; }
// Two e4m3 in 16 bits to f16x2: exact.
inline uint32_t e4m3x2_to_f16x2(uint16_t v) { return pack_f16x2(e4m3_to_f32(v & 0xffu), e4m3_to_f32(v >> 8)); }
// Saturating; NaN becomes 0x7f.
inline uint16_t pack_e4m3x2(float low, float high) { return f32_to_e4m3(low) | static_cast<uint16_t>(f32_to_e4m3(high)) << 8; }
inline uint32_t mul_f16x2(uint32_t a, uint32_t b) {
  const float2 x = unpack_f16x2(a), y = unpack_f16x2(b);
  return pack_f16x2(x.x * y.x, x.y * y.y);
}
inline uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  const float2 x = unpack_f16x2(a), y = unpack_f16x2(b), z = unpack_f16x2(c);
  return pack_f16x2(std::fma(x.x, y.x, z.x), std::fma(x.y, y.y, z.y));
}
inline float exp2_fast(float x) { return std::exp2(x); }
#else
__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(bf16 v) { return __uint_as_float(static_cast<uint32_t>(v.bits) << 16); }
__device__ inline float to_float(f16 v) { return __half2float(__ushort_as_half(v.bits)); }
__device__ inline float to_float(e4m3 v) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(v.bits, __NV_E4M3)));
}
template <class T>
__device__ T from_float(float v);
template <>
__device__ inline float from_float<float>(float v) { return v; }
template <>
__device__ inline bf16 from_float<bf16>(float v) { return {__bfloat16_as_ushort(__float2bfloat16_rn(v))}; }
template <>
__device__ inline f16 from_float<f16>(float v) { return {__half_as_ushort(__float2half_rn(v))}; }
template <>
__device__ inline e4m3 from_float<e4m3>(float v) { return {__nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3)}; }
__device__ inline uint32_t pack_f16x2(float low, float high) {
  uint32_t out;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
__device__ inline uint32_t pack_bf16x2(float low, float high) {
  uint32_t out;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(out) : "f"(high), "f"(low));
  return out;
}
__device__ inline float2 unpack_f16x2(uint32_t v) {
  return __half22float2(__halves2half2(__ushort_as_half(v & 0xffffu), __ushort_as_half(v >> 16)));
}
__device__ inline float2 unpack_bf16x2(uint32_t v) { return {__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)}; }
__device__ inline uint32_t e4m3x2_to_f16x2(uint16_t v) {
  uint32_t out;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(out) : "h"(v));
  return out;
}
__device__ inline uint16_t pack_e4m3x2(float low, float high) {
  uint16_t out;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(out) : "f"(high), "f"(low));
  return out;
}
__device__ inline uint32_t mul_f16x2(uint32_t a, uint32_t b) {
  uint32_t out;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(out) : "r"(a), "r"(b));
  return out;
}
__device__ inline uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t out;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
  return out;
}
__device__ inline float exp2_fast(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}
#endif

// --- Reductions. Every thread gets the result; the order is fixed, so the bits are. ---------------------------------

__device__ inline float warp_sum(float v) {
  for (int with = 16; with > 0; with /= 2) v += __shfl_xor_sync(kAllLanes, v, with);
  return v;
}

__device__ inline float warp_max(float v) {
  for (int with = 16; with > 0; with /= 2) v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, with));
  return v;
}

// Of a one-dimensional block of whole warps. `scratch` is 32 floats of shared memory, free again at the next barrier.
template <class Reduce>
__device__ float block_reduce(float v, float identity, float* scratch, Reduce warp_reduce) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  v = warp_reduce(v);
  __syncthreads();  // scratch may still be read
  if (lane == 0) scratch[warp] = v;
  __syncthreads();
  return warp_reduce(lane < warps ? scratch[lane] : identity);
}

__device__ inline float block_sum(float v, float* scratch) {
  return block_reduce(v, 0.0f, scratch, [](float x) { return warp_sum(x); });
}

__device__ inline float block_max(float v, float* scratch) {
  return block_reduce(v, -INFINITY, scratch, [](float x) { return warp_max(x); });
}

// --- Failures ------------------------------------------------------------------------------------------------------

enum class FaultCode : uint32_t { none, bad_index, nan_input };

// Where a kernel reports bad input. The first report stays until the host throws it (CudaDevice::wait), naming the op.
struct Fault {
  uint32_t* words;  // [0] op index << 8 | code, [1] the offending value
  uint32_t op;
};

__device__ inline void raise(Fault fault, FaultCode code, int32_t value) {
  if (atomicCAS(&fault.words[0], 0u, fault.op << 8 | static_cast<uint32_t>(code)) == 0u)
    fault.words[1] = static_cast<uint32_t>(value);
}

// --- Launch order --------------------------------------------------------------------------------------------------

// With programmatic dependent launch a kernel may start before the previous one has ended. Nothing that the previous
// kernel wrote, or still reads, may be touched before this. Free in kernels launched without it.
__device__ inline void wait_for_previous_kernel() {
#ifndef EDGEWISE_CUDA_EMULATED
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel start its part before wait_for_previous_kernel().
__device__ inline void let_next_kernel_start() {
#ifndef EDGEWISE_CUDA_EMULATED
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// --- Shared memory ---------------------------------------------------------------------------------------------------

// The block's dynamic shared memory, 1,024-byte aligned.
__device__ inline void* dynamic_shared() {
#ifdef EDGEWISE_CUDA_EMULATED
  return emulator::dynamic_shared();
#else
  extern __shared__ __align__(1024) unsigned char edgewise_dynamic_shared[];
  return edgewise_dynamic_shared;
#endif
}

__device__ inline uint32_t shared_address(const void* p) {
#ifdef EDGEWISE_CUDA_EMULATED
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(p));
#else
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
#endif
}

// A barrier of `threads` threads (whole warps), id 1 to 15; 0 is __syncthreads.
__device__ inline void named_barrier(int id, int threads) {
#ifdef EDGEWISE_CUDA_EMULATED
  emulator::barrier(id, threads);
#else
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
#endif
}

// Registers that a thread gives back to its block, or takes, so that it has `kRegisters`: by all warps of a warpgroup (4
// neighbouring ones), a multiple of 8 from 24 to 256. A taker waits until enough are free.
template <int kRegisters>
__device__ void give_registers() {
#ifndef EDGEWISE_CUDA_EMULATED
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

template <int kRegisters>
__device__ void take_registers() {
#ifndef EDGEWISE_CUDA_EMULATED
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
#endif
}

// 16 bytes from global to shared memory, asynchronously; zeros when not `valid`. Both 16-byte aligned.
__device__ inline void copy_async_16(void* shared, const void* global, bool valid = true) {
#ifdef EDGEWISE_CUDA_EMULATED
  if (valid) std::memcpy(shared, global, 16);
  else std::memset(shared, 0, 16);
#else
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
#endif
}

__device__ inline void copy_async_commit() {
#ifndef EDGEWISE_CUDA_EMULATED
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Until at most `kPending` of this thread's groups are under way. Other threads' copies: a barrier after it.
template <int kPending>
__device__ void copy_async_wait() {
#ifndef EDGEWISE_CUDA_EMULATED
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace edgewise::cuda
