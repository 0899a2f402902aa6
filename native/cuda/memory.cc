#include "cuda/memory.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/host_memory.h"
#include "cuda/status.h"

namespace edgewise::cuda {

namespace {

constexpr size_t kStagingSlots = 4, kStagingBytes = size_t{8} << 20;

}  // namespace

std::shared_ptr<void> Allocator::allocate(size_t bytes) {
  collect();
  void* p = nullptr;
  if (const cudaError_t error = cudaMallocAsync(&p, bytes > 0 ? bytes : 1, stream_); error != cudaSuccess) {
    cudaGetLastError();
    size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    throw std::runtime_error("out of GPU memory: " + human_bytes(bytes) + " wanted, " + human_bytes(free_bytes) + " of " +
                             human_bytes(total) + " free (" + cudaGetErrorString(error) + ")");
  }
  return std::shared_ptr<void>(p, [released = released_](void* pointer) {
    std::lock_guard lock(released->mutex);
    released->pointers.push_back(pointer);
  });
}

void Allocator::collect() {
  std::vector<void*> pointers;
  {
    std::lock_guard lock(released_->mutex);
    pointers.swap(released_->pointers);
  }
  for (void* p : pointers) cudaFreeAsync(p, stream_);
}

Staging::~Staging() {
  for (Slot& slot : slots_) {
    cudaFreeHost(slot.memory);
    cudaEventDestroy(slot.free);
  }
}

Staging::Slot& Staging::next() {
  if (slots_.size() < kStagingSlots) {
    Slot slot;
    cuda_check(cudaMallocHost(&slot.memory, kStagingBytes), "pinned memory");
    cuda_check(cudaEventCreateWithFlags(&slot.free, cudaEventDisableTiming), "event");
    slots_.push_back(slot);
    return slots_.back();
  }
  Slot& slot = slots_[turn_++ % kStagingSlots];
  cuda_check(cudaEventSynchronize(slot.free), "staging");
  return slot;
}

void Staging::upload(void* target, const void* data, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kStagingBytes) {
    const size_t n = std::min(kStagingBytes, bytes - at);
    Slot& slot = next();
    std::memcpy(slot.memory, static_cast<const char*>(data) + at, n);
    cuda_check(cudaMemcpyAsync(static_cast<char*>(target) + at, slot.memory, n, cudaMemcpyHostToDevice, stream_), "upload");
    cuda_check(cudaEventRecord(slot.free, stream_), "upload");
  }
}

PinnedPool::~PinnedPool() {
  for (Block& block : free_) cudaFreeHost(block.memory);
}

PinnedPool::Block PinnedPool::take(size_t bytes) {
  for (size_t i = 0; i < free_.size(); ++i)
    if (free_[i].bytes >= bytes && free_[i].bytes <= 2 * bytes + 4096) {
      Block found = free_[i];
      free_[i] = free_.back();
      free_.pop_back();
      return found;
    }
  Block block{nullptr, std::max<size_t>(bytes, 64)};
  cuda_check(cudaMallocHost(&block.memory, block.bytes), "pinned memory");
  return block;
}

Scratch::~Scratch() {
  for (void* block : blocks_) cudaFree(block);
}

void* Scratch::take(size_t bytes) {
  bytes = (bytes + 255) / 256 * 256;
  if (blocks_.empty() || used_ + bytes > size_) {
    size_ = std::max({bytes, 2 * size_, size_t{1} << 20});
    used_ = 0;
    void* block = nullptr;
    cuda_check(cudaMalloc(&block, size_), "scratch memory");
    blocks_.push_back(block);
  }
  void* out = static_cast<char*>(blocks_.back()) + used_;
  used_ += bytes;
  return out;
}

}  // namespace edgewise::cuda
