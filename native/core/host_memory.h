// Memory of the CPU backends.
#pragma once

#include "core/tensor.h"

namespace edgewise {

// Zeroed bytes, 64-byte aligned; freed with the storage's owner. Throws std::runtime_error when there are none.
Storage host_allocate(size_t bytes);

// A number of bytes for messages: "12.5 MiB".
std::string human_bytes(size_t bytes);

}  // namespace edgewise
