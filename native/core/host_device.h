// The device of the CPU backends.
#pragma once

#include <chrono>
#include <map>

#include "core/device.h"
#include "core/stream.h"

namespace edgewise {

// Cores this process may use.
int available_threads();

class HostDevice : public Device {
 public:
  explicit HostDevice(const DeviceConfig& config);
  ~HostDevice() override { dispose(); }

  std::string isa() const override { return isa_name(config_.isa); }
  bool disposed() const override { return !stream_; }
  bool capturing() const override { return capture_ != nullptr; }
  std::shared_ptr<Storage> allocate(size_t bytes) override;
  std::shared_ptr<Storage> from_host(const void* data, size_t bytes) override;
  Tensor from_file(const std::shared_ptr<Storage>& file, size_t offset, DType dtype, const Shape& shape) override;
  void run(const OpEntry& op, Args& args) override;
  void read(const Tensor& source, void* out) override;
  uint64_t download(const Tensor& source) override;
  std::vector<char> receive(uint64_t ticket) override;
  void begin_capture() override;
  std::shared_ptr<const Graph> end_capture() override;
  void abandon_capture() noexcept override { capture_.reset(); }
  void replay(const std::shared_ptr<const Graph>& graph) override;
  uint64_t record() override { return stream_->record(); }
  void wait(uint64_t ticket) override { stream_->wait(ticket); }
  uint64_t timestamp() override;
  double elapsed(uint64_t from, uint64_t to) override;
  void dispose() override;

 private:
  struct HostGraph : Graph {
    std::shared_ptr<Steps> steps = std::make_shared<Steps>();
    size_t launches() const override { return steps->size(); }
  };

  void enqueue_upload(const Tensor& target, const void* data, size_t bytes) override;

  std::unique_ptr<Stream> stream_;
  std::shared_ptr<HostGraph> capture_;
  std::map<uint64_t, std::shared_ptr<std::vector<char>>> downloads_;
  using Time = std::chrono::steady_clock::time_point;
  std::map<uint64_t, std::shared_ptr<Time>> timestamps_;
};

}  // namespace edgewise
