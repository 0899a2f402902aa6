// A device: memory, one in-order stream, captured graphs. Used from one thread, except where stated.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/op.h"
#include "core/view.h"

namespace edgewise {

// Memory for the intermediates of a step. Tensors taken before reset() stay addressable and hold whatever comes next.
struct Arena {
  std::shared_ptr<Storage> block;
  size_t used = 0;
  size_t peak = 0;

  // Uninitialised, 256-byte aligned.
  Tensor take(DType dtype, const Shape& shape);
};

struct DeviceConfig {
  Backend backend = Backend::cpu;
  Isa isa = Isa::portable;  // CPU backends
  int threads = 1;          // CPU backends
  int gpu = 0;              // CUDA: the GPU's index
};

// A captured sequence of ops.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual size_t launches() const = 0;
};

class Device {
 public:
  explicit Device(const DeviceConfig& config);
  virtual ~Device() = default;
  Device(const Device&) = delete;

  const DeviceConfig& config() const { return config_; }
  uint64_t id() const { return id_; }  // unique in the process
  uint64_t launches() const { return launches_; }
  // Bytes of memory alive: allocations and arenas.
  int64_t allocated_bytes() const { return allocated_->load(); }
  // Instruction set, or the GPU's name.
  virtual std::string isa() const = 0;
  virtual bool disposed() const = 0;
  virtual bool capturing() const = 0;

  // Zeroed memory that ends with its last view or with dispose().
  virtual std::shared_ptr<Storage> allocate(size_t bytes) = 0;
  // New memory that holds `data`.
  virtual std::shared_ptr<Storage> from_host(const void* data, size_t bytes) = 0;
  // Bytes of a mapped file as a tensor; a copy where the device can't use the mapping as it lies.
  virtual Tensor from_file(const std::shared_ptr<Storage>& file, size_t offset, DType dtype, const Shape& shape) = 0;

  virtual void run(const OpEntry& op, Args& args) = 0;
  void upload(const Tensor& target, const void* data, size_t bytes);
  // Waits for the stream; `out` gets the tensor's elements.
  virtual void read(const Tensor& source, void* out) = 0;
  // Enqueues a copy to the host of the tensor as it is at this point of the stream. The ticket is good for wait() too.
  virtual uint64_t download(const Tensor& source) = 0;
  // Waits for a download and hands its bytes out, once.
  virtual std::vector<char> receive(uint64_t ticket) = 0;

  virtual void begin_capture() = 0;
  virtual std::shared_ptr<const Graph> end_capture() = 0;
  // Drops what was captured, after a failure.
  virtual void abandon_capture() noexcept = 0;
  virtual void replay(const std::shared_ptr<const Graph>& graph) = 0;

  virtual uint64_t record() = 0;
  virtual void wait(uint64_t ticket) = 0;
  // Marks this point of the stream with the device's clock; elapsed() waits for both and gives milliseconds.
  virtual uint64_t timestamp() = 0;
  virtual double elapsed(uint64_t from, uint64_t to) = 0;
  void sync() { wait(record()); }

  // Waits for the running kernel, drops the rest, frees all memory. May be called twice.
  virtual void dispose() = 0;
  // Throws "<what>: ..." when the device is disposed, or capturing and `what` is not for captures.
  void check(const char* what, bool in_capture) const;

 protected:
  virtual void enqueue_upload(const Tensor& target, const void* data, size_t bytes) = 0;
  // Counts `storage` among the memory of this device, which dispose() empties whoever still holds a view.
  void adopt(const std::shared_ptr<Storage>& storage);
  // As adopt, with its bytes in allocated_bytes() until its last owner is gone (on any thread).
  void adopt_counted(const std::shared_ptr<Storage>& storage);
  void empty_storages();

  DeviceConfig config_;
  uint64_t launches_ = 0;

 private:
  uint64_t id_;
  std::vector<std::weak_ptr<Storage>> storages_;
  size_t prune_at_ = 64;
  std::shared_ptr<std::atomic<int64_t>> allocated_;  // outlives the device
};

}  // namespace edgewise
