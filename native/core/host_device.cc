#include "core/host_device.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/host_memory.h"

namespace edgewise {

int available_threads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(CPU_COUNT(&set), 1);
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

HostDevice::HostDevice(const DeviceConfig& config) : Device(config), stream_(std::make_unique<Stream>(config.threads)) {}

std::shared_ptr<Storage> HostDevice::allocate(size_t bytes) {
  auto storage = std::make_shared<Storage>(host_allocate(bytes));
  adopt_counted(storage);
  return storage;
}

// Nothing on the stream knows the new memory: no need to queue the copy.
std::shared_ptr<Storage> HostDevice::from_host(const void* data, size_t bytes) {
  auto storage = allocate(bytes);
  if (bytes > 0) std::memcpy(storage->data, data, bytes);
  return storage;
}

Tensor HostDevice::from_file(const std::shared_ptr<Storage>& file, size_t offset, DType dtype, const Shape& shape) {
  const Tensor mapped = make_tensor(file, offset, dtype, shape);
  const bool aligned = reinterpret_cast<uintptr_t>(mapped.raw()) % dtype_size(dtype) == 0;
  if (!aligned) return make_tensor(from_host(mapped.raw(), checked_bytes(dtype, shape)), 0, dtype, shape);
  auto window = std::make_shared<Storage>(*file);
  adopt(window);
  return make_tensor(window, offset, dtype, shape);
}

void HostDevice::run(const OpEntry& op, Args& args) {
  Step step{op.name.c_str(), op.bind({config_.backend, config_.isa}, args)};
  if (capture_) {
    capture_->steps->push_back(std::move(step));
    return;
  }
  stream_->enqueue(std::move(step));
  ++launches_;
}

void HostDevice::enqueue_upload(const Tensor& target, const void* data, size_t bytes) {
  auto staged = std::make_shared<std::vector<char>>(static_cast<const char*>(data), static_cast<const char*>(data) + bytes);
  stream_->enqueue({"upload", [target, staged](Context&) { std::memcpy(target.raw(), staged->data(), staged->size()); }});
}

void HostDevice::read(const Tensor& source, void* out) {
  stream_->sync();
  copy_out(source, out);
}

uint64_t HostDevice::download(const Tensor& source) {
  auto bytes = std::make_shared<std::vector<char>>(static_cast<size_t>(source.elements()) * dtype_size(source.dtype));
  stream_->enqueue({"download", [source, bytes](Context&) { copy_out(source, bytes->data()); }});
  const uint64_t ticket = stream_->record();
  downloads_[ticket] = std::move(bytes);
  return ticket;
}

std::vector<char> HostDevice::receive(uint64_t ticket) {
  auto node = downloads_.extract(ticket);
  if (node.empty()) throw std::runtime_error("receive: no download has the ticket " + std::to_string(ticket));
  stream_->wait(ticket);
  return std::move(*node.mapped());
}

uint64_t HostDevice::timestamp() {
  auto time = std::make_shared<Time>();
  stream_->enqueue({"timestamp", [time](Context&) { *time = std::chrono::steady_clock::now(); }});
  const uint64_t ticket = stream_->record();
  timestamps_[ticket] = std::move(time);
  return ticket;
}

double HostDevice::elapsed(uint64_t from, uint64_t to) {
  const auto a = timestamps_.find(from), b = timestamps_.find(to);
  if (a == timestamps_.end() || b == timestamps_.end()) throw std::runtime_error("elapsed: no such timestamp");
  wait(from);
  wait(to);
  return std::chrono::duration<double, std::milli>(*b->second - *a->second).count();
}

void HostDevice::begin_capture() { capture_ = std::make_shared<HostGraph>(); }

std::shared_ptr<const Graph> HostDevice::end_capture() { return std::exchange(capture_, nullptr); }

void HostDevice::replay(const std::shared_ptr<const Graph>& graph) {
  const auto& steps = static_cast<const HostGraph&>(*graph).steps;
  stream_->enqueue(std::shared_ptr<const Steps>(steps));
  launches_ += steps->size();
}

void HostDevice::dispose() {
  stream_.reset();
  capture_.reset();
  downloads_.clear();
  timestamps_.clear();
  empty_storages();
}

}  // namespace edgewise
