// A device of the CPU backends: memory, one stream, captured graphs. Used from one thread, except where stated.
#pragma once

#include <memory>
#include <atomic>
#include <vector>

#include "core/op.h"
#include "core/stream.h"
#include "core/view.h"

namespace edgewise {

// Memory for the intermediates of a step. Tensors taken before reset() stay addressable and hold whatever comes next.
struct Arena {
  std::shared_ptr<Storage> block;
  size_t used = 0;
  size_t peak = 0;

  // Uninitialised, 64-byte aligned.
  Tensor take(DType dtype, const Shape& shape);
};

struct DeviceConfig {
  Backend backend = Backend::cpu;
  Isa isa = Isa::portable;
  int threads = 1;
};

// Cores this process may use.
int available_threads();

class Device {
 public:
  explicit Device(const DeviceConfig& config);
  ~Device() { dispose(); }

  const DeviceConfig& config() const { return config_; }
  uint64_t id() const { return id_; }  // unique in the process
  bool disposed() const { return !stream_; }
  uint64_t launches() const { return launches_; }
  // Bytes of memory alive: allocations and arenas.
  int64_t allocated_bytes() const;

  // Zeroed memory that ends with its last view or with dispose().
  std::shared_ptr<Storage> allocate(size_t bytes);
  // Bytes of a mapped file as a tensor; copied only when the address is not aligned to the dtype.
  Tensor from_file(const std::shared_ptr<Storage>& file, size_t offset, DType dtype, const Shape& shape);

  void run(const OpEntry& op, Args& args);
  void upload(const Tensor& target, const void* data, size_t bytes);
  // `out` holds the tensor's elements.
  void read(const Tensor& source, void* out);

  void begin_capture();
  std::shared_ptr<const Steps> end_capture();  // also after a failure, to drop what was captured
  bool capturing() const { return capture_ != nullptr; }
  void replay(const std::shared_ptr<const Steps>& steps);

  uint64_t record();
  void wait(uint64_t ticket);
  void sync();

  // Waits for the running kernel, drops the rest, frees all memory. May be called twice.
  void dispose();
  // Throws "<what>: ..." when the device is disposed, or capturing and `what` is not for captures.
  void check(const char* what, bool in_capture) const;

 private:
  void adopt(const std::shared_ptr<Storage>& storage);

  DeviceConfig config_;
  uint64_t id_;
  uint64_t launches_ = 0;
  std::unique_ptr<Stream> stream_;
  std::shared_ptr<Steps> capture_;
  // What dispose() empties, whoever still holds a view.
  std::vector<std::weak_ptr<Storage>> storages_;
  size_t prune_at_ = 64;
  std::shared_ptr<std::atomic<int64_t>> allocated_;  // outlives the device: freed from any thread
};

}  // namespace edgewise
