// CUDA on the CPU, for tests: what our .cu files need of the CUDA language and runtime, so that g++ compiles them and any
// machine runs them (EDGEWISE_CUDA=emulated). Slow and strict:
//   - every thread of a block is a fiber; the blocks of a grid run one after the other, their fibers in an order that
//     EDGEWISE_EMULATOR_ORDER chooses (forward, backward, or a seed), so that a missing barrier shows as a wrong result
//   - a barrier that not all threads reach ends the process with the kernel's name, instead of hanging
//   - device memory ends at an unreadable page, and is not zero when it is new
// Not emulated: clusters, tensor maps, wgmma, blocks that wait for each other, and time.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define EDGEWISE_CUDA_EMULATED 1
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static thread_local
#define __constant__ static
#define __restrict__
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(4) ushort2 { unsigned short x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

extern thread_local uint3 threadIdx, blockIdx;
extern thread_local dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace edgewise::emulator {

// Lets the other threads of the block run: for loops that wait for them.
void yield();
void barrier(int id, int threads);  // threads 0: all of the block that have not returned
void warp_barrier(unsigned mask);
// Publishes `value` (at most 16 bytes) for the lanes of `mask`, then reads those of lane `from`.
void exchange(unsigned mask, const void* value, void* out, size_t bytes, int from);
// As exchange, the values of all 32 lanes: out[32 * bytes].
void gather(unsigned mask, const void* value, void* out, size_t bytes);
void* dynamic_shared();
[[noreturn]] void trap();

struct Launch {
  const char* kernel;
  dim3 grid, block;
  size_t shared;
  std::function<void()> body;
};
void launch(void* stream, Launch launch);

inline int lane() { return static_cast<int>((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32); }

}  // namespace edgewise::emulator

inline void __syncthreads() { edgewise::emulator::barrier(0, 0); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { edgewise::emulator::warp_barrier(mask); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __trap() { edgewise::emulator::trap(); }
inline void __nanosleep(unsigned) { edgewise::emulator::yield(); }

template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  T out;
  const int lane = edgewise::emulator::lane();
  edgewise::emulator::exchange(mask, &value, &out, sizeof(T), lane / width * width + (from & (width - 1)));
  return out;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32) {
  T out;
  const int lane = edgewise::emulator::lane(), from = lane ^ with;
  edgewise::emulator::exchange(mask, &value, &out, sizeof(T), from / width == lane / width ? from : lane);
  return out;
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  T out;
  const int lane = edgewise::emulator::lane(), from = lane + static_cast<int>(by);
  edgewise::emulator::exchange(mask, &value, &out, sizeof(T), from / width == lane / width ? from : lane);
  return out;
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  T out;
  const int lane = edgewise::emulator::lane(), from = lane - static_cast<int>(by);
  edgewise::emulator::exchange(mask, &value, &out, sizeof(T), from >= lane / width * width ? from : lane);
  return out;
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  int all[32];
  edgewise::emulator::gather(mask, &predicate, all, sizeof(int));
  unsigned bits = 0;
  for (int i = 0; i < 32; ++i)
    if ((mask >> i & 1u) && all[i]) bits |= 1u << i;
  return bits;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }
inline unsigned __activemask() { return 0xffffffffu; }
inline unsigned __match_any_sync(unsigned mask, unsigned value) {
  unsigned all[32], bits = 0;
  edgewise::emulator::gather(mask, &value, all, sizeof(unsigned));
  for (int i = 0; i < 32; ++i)
    if ((mask >> i & 1u) && all[i] == value) bits |= 1u << i;
  return bits;
}
template <class T, class F>
T edgewise_emulated_reduce(unsigned mask, T value, F combine) {
  T all[32], out = value;
  edgewise::emulator::gather(mask, &value, all, sizeof(T));
  bool first = true;
  for (int i = 0; i < 32; ++i)
    if (mask >> i & 1u) out = first ? all[i] : combine(out, all[i]), first = false;
  return out;
}
template <class T>
T __reduce_add_sync(unsigned mask, T v) { return edgewise_emulated_reduce(mask, v, [](T a, T b) { return a + b; }); }
template <class T>
T __reduce_max_sync(unsigned mask, T v) { return edgewise_emulated_reduce(mask, v, [](T a, T b) { return std::max(a, b); }); }
template <class T>
T __reduce_min_sync(unsigned mask, T v) { return edgewise_emulated_reduce(mask, v, [](T a, T b) { return std::min(a, b); }); }

// One fiber runs at a time: plain operations are atomic.
template <class T, class U>
T atomicAdd(T* p, U v) { const T old = *p; *p = old + static_cast<T>(v); return old; }
template <class T, class U>
T atomicMax(T* p, U v) { const T old = *p; *p = std::max(old, static_cast<T>(v)); return old; }
template <class T, class U>
T atomicMin(T* p, U v) { const T old = *p; *p = std::min(old, static_cast<T>(v)); return old; }
template <class T, class U>
T atomicOr(T* p, U v) { const T old = *p; *p = old | static_cast<T>(v); return old; }
template <class T, class U>
T atomicExch(T* p, U v) { const T old = *p; *p = static_cast<T>(v); return old; }
template <class T, class U, class V>
T atomicCAS(T* p, U expected, V v) { const T old = *p; if (old == static_cast<T>(expected)) *p = static_cast<T>(v); return old; }

template <class T>
T __ldg(const T* p) { return *p; }
template <class T>
T __ldcs(const T* p) { return *p; }
template <class T>
T __ldcg(const T* p) { return *p; }
template <class T>
void __stcs(T* p, T v) { *p = v; }
template <class T>
void __stcg(T* p, T v) { *p = v; }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline void sincosf(float x, float* s, float* c, int) { *s = std::sin(x), *c = std::cos(x); }
inline float __int_as_float(int v) { return std::bit_cast<float>(v); }
inline int __float_as_int(float v) { return std::bit_cast<int>(v); }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __popcll(unsigned long long v) { return std::popcount(v); }
inline int __clz(int v) { return std::countl_zero(static_cast<unsigned>(v)); }
inline int __ffs(int v) { return v == 0 ? 0 : std::countr_zero(static_cast<unsigned>(v)) + 1; }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
  unsigned out = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = selector >> (4 * i) & 0xfu;
    unsigned byte = static_cast<unsigned>(both >> (8 * (s & 7u))) & 0xffu;
    if (s & 8u) byte = byte & 0x80u ? 0xffu : 0;
    out |= byte << (8 * i);
  }
  return out;
}
using std::max;
using std::min;

// The runtime.
using cudaStream_t = struct EmulatedStream*;
using cudaEvent_t = struct EmulatedEvent*;
using cudaGraph_t = struct EmulatedGraph*;
using cudaGraphExec_t = struct EmulatedGraph*;
enum cudaError_t { cudaSuccess = 0, cudaErrorMemoryAllocation = 2, cudaErrorNotReady = 600, cudaErrorInvalidValue = 1 };
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrComputeCapabilityMajor = 75, cudaDevAttrComputeCapabilityMinor = 76 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;
struct cudaDeviceProp { char name[256]; int major, minor, multiProcessorCount; size_t totalGlobalMem; };

const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total);
cudaError_t cudaMalloc(void** out, size_t bytes);
cudaError_t cudaFree(void* p);
cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* p, cudaStream_t stream);
cudaError_t cudaMallocHost(void** out, size_t bytes);
cudaError_t cudaFreeHost(void* p);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);
