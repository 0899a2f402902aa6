#pragma once

#include <string>

#include "core/tensor.h"

namespace edgewise {

// A file mapped read-only. Throws std::runtime_error with the path and the system's reason. The size is the one at
// the time of the call: a file that shrinks while it is mapped ends the process with SIGBUS on the next access, so
// checkpoints must be replaced by renaming, not written in place.
std::shared_ptr<Storage> map_file(const std::string& path);

}  // namespace edgewise
