#include "core/device.h"

#include "core/host_memory.h"

namespace edgewise {

namespace {

std::atomic<uint64_t> next_device_id{1};

constexpr size_t kArenaAlignment = 256;

}  // namespace

Tensor Arena::take(DType dtype, const Shape& shape) {
  const size_t bytes = checked_bytes(dtype, shape);
  const size_t begin = (used + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  if (begin > block->bytes || bytes > block->bytes - begin)
    throw std::runtime_error("temp: the arena of " + human_bytes(block->bytes) + " is full: " + human_bytes(used) +
                             " used, " + human_bytes(bytes) + " wanted for " + dtype_name(dtype) + describe(shape));
  used = begin + bytes;
  peak = std::max(peak, used);
  return make_tensor(block, begin, dtype, shape);
}

Device::Device(const DeviceConfig& config)
    : config_(config), id_(next_device_id.fetch_add(1)), allocated_(std::make_shared<std::atomic<int64_t>>(0)) {}

void Device::check(const char* what, bool in_capture) const {
  if (disposed()) throw std::runtime_error(std::string(what) + ": the device is disposed");
  if (capturing() && !in_capture) throw std::runtime_error(std::string(what) + ": not during capture");
}

void Device::upload(const Tensor& target, const void* data, size_t bytes) {
  if (target.storage->read_only) throw std::runtime_error("upload: target: lies in a read-only file mapping");
  if (!target.contiguous()) throw std::runtime_error("upload: target: must be contiguous, is " + target.describe());
  const size_t room = static_cast<size_t>(target.elements()) * dtype_size(target.dtype);
  if (bytes > room)
    throw std::runtime_error("upload: data: " + std::to_string(bytes) + " bytes do not fit " + target.describe());
  if (bytes > 0) enqueue_upload(target, data, bytes);
}

void Device::adopt(const std::shared_ptr<Storage>& storage) {
  if (storages_.size() >= prune_at_) {
    std::erase_if(storages_, [](const auto& weak) { return weak.expired(); });
    prune_at_ = std::max<size_t>(64, storages_.size() * 2);
  }
  storages_.push_back(storage);
}

void Device::adopt_counted(const std::shared_ptr<Storage>& storage) {
  const size_t bytes = storage->bytes;
  allocated_->fetch_add(static_cast<int64_t>(bytes));
  storage->owner = std::shared_ptr<void>(
      storage->data, [memory = storage->owner, counter = allocated_, bytes](void*) mutable {
        memory.reset();
        counter->fetch_sub(static_cast<int64_t>(bytes));
      });
  adopt(storage);
}

void Device::empty_storages() {
  for (const auto& weak : storages_)
    if (auto storage = weak.lock()) *storage = Storage{};
  storages_.clear();
}

}  // namespace edgewise
