#include "core/device.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/host_memory.h"

namespace edgewise {

namespace {

std::atomic<uint64_t> next_device_id{1};

}  // namespace

int available_threads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(CPU_COUNT(&set), 1);
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

Tensor Arena::take(DType dtype, const Shape& shape) {
  const size_t bytes = checked_bytes(dtype, shape);
  const size_t begin = (used + 63) / 64 * 64;
  if (begin > block->bytes || bytes > block->bytes - begin)
    throw std::runtime_error("temp: the arena of " + human_bytes(block->bytes) + " is full: " + human_bytes(used) +
                             " used, " + human_bytes(bytes) + " wanted for " + dtype_name(dtype) + describe(shape));
  used = begin + bytes;
  peak = std::max(peak, used);
  return make_tensor(block, begin, dtype, shape);
}

Device::Device(const DeviceConfig& config)
    : config_(config),
      id_(next_device_id.fetch_add(1)),
      stream_(std::make_unique<Stream>(config.threads)),
      allocated_(std::make_shared<std::atomic<int64_t>>(0)) {}

void Device::check(const char* what, bool in_capture) const {
  if (disposed()) throw std::runtime_error(std::string(what) + ": the device is disposed");
  if (capture_ && !in_capture) throw std::runtime_error(std::string(what) + ": not during capture");
}

int64_t Device::allocated_bytes() const { return allocated_->load(); }

void Device::adopt(const std::shared_ptr<Storage>& storage) {
  if (storages_.size() >= prune_at_) {
    std::erase_if(storages_, [](const auto& weak) { return weak.expired(); });
    prune_at_ = std::max<size_t>(64, storages_.size() * 2);
  }
  storages_.push_back(storage);
}

std::shared_ptr<Storage> Device::allocate(size_t bytes) {
  auto storage = std::make_shared<Storage>(host_allocate(bytes));
  // One more owner, that counts.
  allocated_->fetch_add(static_cast<int64_t>(bytes));
  storage->owner = std::shared_ptr<void>(
      storage->data, [memory = storage->owner, counter = allocated_, bytes](void*) mutable {
        memory.reset();
        counter->fetch_sub(static_cast<int64_t>(bytes));
      });
  adopt(storage);
  return storage;
}

Tensor Device::from_file(const std::shared_ptr<Storage>& file, size_t offset, DType dtype, const Shape& shape) {
  const Tensor mapped = make_tensor(file, offset, dtype, shape);
  const bool aligned = reinterpret_cast<uintptr_t>(mapped.raw()) % dtype_size(dtype) == 0;
  if (!aligned) {
    const size_t bytes = checked_bytes(dtype, shape);
    Tensor copy = make_tensor(allocate(bytes), 0, dtype, shape);
    if (bytes > 0) std::memcpy(copy.raw(), mapped.raw(), bytes);
    return copy;
  }
  auto window = std::make_shared<Storage>(*file);
  adopt(window);
  return make_tensor(window, offset, dtype, shape);
}

void Device::run(const OpEntry& op, Args& args) {
  Step step{op.name.c_str(), op.bind({config_.backend, config_.isa}, args)};
  if (capture_) {
    capture_->push_back(std::move(step));
    return;
  }
  stream_->enqueue(std::move(step));
  ++launches_;
}

void Device::upload(const Tensor& target, const void* data, size_t bytes) {
  if (target.storage->read_only) throw std::runtime_error("upload: target: lies in a read-only file mapping");
  if (!target.contiguous()) throw std::runtime_error("upload: target: must be contiguous, is " + target.describe());
  const size_t room = static_cast<size_t>(target.elements()) * dtype_size(target.dtype);
  if (bytes > room)
    throw std::runtime_error("upload: data: " + std::to_string(bytes) + " bytes do not fit " + target.describe());
  auto staged = std::make_shared<std::vector<char>>(static_cast<const char*>(data), static_cast<const char*>(data) + bytes);
  stream_->enqueue({"upload", [target, staged](Context&) {
                      if (!staged->empty()) std::memcpy(target.raw(), staged->data(), staged->size());
                    }});
}

void Device::read(const Tensor& source, void* out) {
  stream_->sync();
  copy_out(source, out);
}

void Device::begin_capture() { capture_ = std::make_shared<Steps>(); }

std::shared_ptr<const Steps> Device::end_capture() { return std::exchange(capture_, nullptr); }

void Device::replay(const std::shared_ptr<const Steps>& steps) {
  stream_->enqueue(steps);
  launches_ += steps->size();
}

uint64_t Device::record() { return stream_->record(); }
void Device::wait(uint64_t ticket) { stream_->wait(ticket); }
void Device::sync() { stream_->sync(); }

void Device::dispose() {
  stream_.reset();
  capture_.reset();
  for (const auto& weak : storages_)
    if (auto storage = weak.lock()) *storage = Storage{};
  storages_.clear();
}

}  // namespace edgewise
