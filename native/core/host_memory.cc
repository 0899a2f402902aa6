#include "core/host_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace edgewise {

namespace {

constexpr size_t kMapFrom = size_t{1} << 20;       // from here on, pages of our own: zeroed lazily by the kernel
constexpr size_t kHugePagesFrom = size_t{4} << 20;

Storage allocate_small(size_t bytes) {
  void* data = nullptr;
  // Exactly as many bytes as asked for, so that a sanitizer sees the first one beyond them.
  if (posix_memalign(&data, 64, std::max<size_t>(bytes, 1)) != 0)
    throw std::runtime_error("out of memory: " + human_bytes(bytes));
  std::memset(data, 0, bytes);
  return {data, bytes, std::shared_ptr<void>(data, std::free)};
}

}  // namespace

Storage host_allocate(size_t bytes) {
  if (bytes < kMapFrom) return allocate_small(bytes);
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::runtime_error("out of memory: " + human_bytes(bytes));
  if (bytes >= kHugePagesFrom) madvise(data, bytes, MADV_HUGEPAGE);
  return {data, bytes, std::shared_ptr<void>(data, [bytes](void* p) { munmap(p, bytes); })};
}

std::string human_bytes(size_t bytes) {
  static constexpr const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 6; ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

}  // namespace edgewise
