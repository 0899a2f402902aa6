// Temporary memory of one kernel call, reused by the next one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "core/host_memory.h"

namespace edgewise {

// Grows to the largest kernel's need. take() keeps earlier regions valid until reset().
class Scratch {
 public:
  void* take(size_t bytes) {
    bytes = (bytes + 63) / 64 * 64;
    if (blocks_.empty() || used_ + bytes > blocks_.back().bytes) {
      blocks_.push_back(host_allocate(std::max(bytes, total_ + (size_t{64} << 10))));
      total_ += blocks_.back().bytes;
      used_ = 0;
    }
    void* region = static_cast<char*>(blocks_.back().data) + used_;
    used_ += bytes;
    return region;
  }

  // Keeps only the newest block, which holds what the finished kernel needed or is on its way there.
  void reset() {
    if (blocks_.size() > 1) blocks_.erase(blocks_.begin(), blocks_.end() - 1);
    total_ = blocks_.empty() ? 0 : blocks_.back().bytes;
    used_ = 0;
  }

 private:
  std::vector<Storage> blocks_;
  size_t total_ = 0;  // bytes of all blocks
  size_t used_ = 0;   // bytes used of the newest block
};

}  // namespace edgewise
