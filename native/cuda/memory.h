// Memory of a CUDA device: stream-ordered allocations, pinned staging, scratch.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace edgewise::cuda {

// Allocations that end with their last owner, on whatever thread that is (a finalizer's, say): the memory itself is given
// back by the device's thread, in the order of its stream, when it next calls collect().
class Allocator {
 public:
  explicit Allocator(cudaStream_t stream) : stream_(stream), released_(std::make_shared<Released>()) {}
  // Uninitialised. Throws when there is none left, with the sizes.
  std::shared_ptr<void> allocate(size_t bytes);
  void collect();

 private:
  struct Released {
    std::mutex mutex;
    std::vector<void*> pointers;
  };
  cudaStream_t stream_;
  std::shared_ptr<Released> released_;
};

// Host memory that copies run from without waiting: a ring of page-locked buffers.
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream) {}
  ~Staging();
  Staging(const Staging&) = delete;
  // Enqueues the copy; `data` may be overwritten at once.
  void upload(void* target, const void* data, size_t bytes);

 private:
  struct Slot {
    void* memory = nullptr;
    cudaEvent_t free = nullptr;  // recorded behind the copy that reads it
  };
  Slot& next();

  cudaStream_t stream_;
  std::vector<Slot> slots_;
  size_t turn_ = 0;
};

// Page-locked host memory, reused by size.
class PinnedPool {
 public:
  ~PinnedPool();
  struct Block {
    void* memory = nullptr;
    size_t bytes = 0;
  };
  Block take(size_t bytes);
  void give_back(Block block) { free_.push_back(block); }

 private:
  std::vector<Block> free_;
};

// Temporary memory of one op, reused by the next: the stream is in order. Blocks that became too small stay, because
// captured graphs know their address.
class Scratch {
 public:
  ~Scratch();
  void begin_op() { used_ = 0; }
  void* take(size_t bytes);

 private:
  std::vector<void*> blocks_;
  size_t size_ = 0, used_ = 0;  // of the newest block
};

}  // namespace edgewise::cuda
