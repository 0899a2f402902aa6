// The CUDA runtime of the emulator: a stream runs at once, or records while it is captured.
#include <sys/mman.h>

#include <chrono>
#include <map>
#include <mutex>
#include <vector>

#include "cuda_runtime.h"

struct EmulatedGraph {
  std::vector<std::function<void()>> nodes;
};
struct EmulatedStream {
  EmulatedGraph* capture = nullptr;
};
struct EmulatedEvent {
  std::chrono::steady_clock::time_point time;
};

namespace edgewise::emulator {
void run_launch(const Launch& launch);
}

namespace {

struct Mapping {
  void* base;
  size_t bytes;
};
std::mutex mappings_mutex;
std::map<void*, Mapping>& mappings() {
  static std::map<void*, Mapping> all;
  return all;
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
  if (stream->capture) stream->capture->nodes.push_back(std::move(work));
  else work();
  return cudaSuccess;
}

}  // namespace

void edgewise::emulator::launch(void* stream, Launch launch) {
  enqueue(static_cast<cudaStream_t>(stream), [launch = std::move(launch)] { run_launch(launch); });
}

const char* cudaGetErrorString(cudaError_t error) { return error == cudaErrorMemoryAllocation ? "out of memory" : "invalid"; }
const char* cudaGetErrorName(cudaError_t error) { return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError"; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int) {
  *out = {"emulated GPU", 9, 0, 4, size_t{16} << 30};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? 4 : attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) { return *free_bytes = *total = size_t{16} << 30, cudaSuccess; }

cudaError_t cudaMalloc(void** out, size_t bytes) {
  // 16-byte aligned at least, its end as near to the guard page as that allows; 256-byte aligned where that costs nothing.
  const size_t page = 4096, padded = (bytes + 15) / 16 * 16;
  const size_t mapped = (padded + page - 1) / page * page;
  char* base = static_cast<char*>(mmap(nullptr, mapped + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  if (base == MAP_FAILED) return cudaErrorMemoryAllocation;
  mprotect(base + mapped, page, PROT_NONE);
  const size_t shift = (mapped - padded) / 256 * 256;
  std::memset(base + shift, 0xff, mapped - shift < (size_t{1} << 24) ? mapped - shift : 0);
  std::lock_guard lock(mappings_mutex);
  mappings()[base + shift] = {base, mapped + page};
  *out = base + shift;
  return cudaSuccess;
}

cudaError_t cudaFree(void* p) {
  std::lock_guard lock(mappings_mutex);
  const auto found = mappings().find(p);
  if (found == mappings().end()) return p ? cudaErrorInvalidValue : cudaSuccess;
  munmap(found->second.base, found->second.bytes);
  mappings().erase(found);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** out, size_t bytes, cudaStream_t) { return cudaMalloc(out, bytes); }
cudaError_t cudaFreeAsync(void* p, cudaStream_t) { return cudaFree(p); }

cudaError_t cudaMallocHost(void** out, size_t bytes) { return (*out = std::malloc(bytes)) ? cudaSuccess : cudaErrorMemoryAllocation; }
cudaError_t cudaFreeHost(void* p) { return std::free(p), cudaSuccess; }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  return enqueue(stream, [=] { std::memcpy(to, from, bytes); });
}
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  return enqueue(stream, [=] { std::memset(p, value, bytes); });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) { return *out = new EmulatedStream, cudaSuccess; }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return delete stream, cudaSuccess; }
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) { return stream->capture = new EmulatedGraph, cudaSuccess; }
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  *out = stream->capture;
  stream->capture = nullptr;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) { return *out = new EmulatedGraph(*graph), cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t) {
  for (const auto& node : graph->nodes) node();
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) { return *out = new EmulatedEvent, cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) { return event->time = std::chrono::steady_clock::now(), cudaSuccess; }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count(), cudaSuccess;
}
