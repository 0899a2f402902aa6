#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace edgewise {

namespace {

struct File {
  int fd;
  ~File() {
    if (fd >= 0) close(fd);
  }
};

[[noreturn]] void fail(const std::string& path, const char* reason) {
  throw std::runtime_error("mapFile: " + path + ": " + reason);
}

}  // namespace

std::shared_ptr<Storage> map_file(const std::string& path) {
  const File file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  struct stat info {};
  if (file.fd < 0 || fstat(file.fd, &info) != 0) fail(path, std::strerror(errno));
  if (!S_ISREG(info.st_mode)) fail(path, "not a regular file");
  auto storage = std::make_shared<Storage>();
  storage->read_only = true;
  storage->bytes = static_cast<size_t>(info.st_size);
  if (storage->bytes == 0) return storage;
  void* data = mmap(nullptr, storage->bytes, PROT_READ, MAP_SHARED, file.fd, 0);
  if (data == MAP_FAILED) fail(path, std::strerror(errno));
  const size_t bytes = storage->bytes;
  storage->data = data;
  storage->owner = std::shared_ptr<void>(data, [bytes](void* p) { munmap(p, bytes); });
  return storage;
}

}  // namespace edgewise
