// The CUDA backend as the addon sees it.
#pragma once

#include <memory>
#include <string>

#include "core/device.h"

namespace edgewise::cuda {

// Why no GPU can be used on this machine, or an empty string. Never throws.
std::string unavailable();

// True when the kernels of this build run on the CPU, for tests (cuda/emulator).
bool emulated();

// Throws, saying why, when config.gpu can't be opened.
std::shared_ptr<Device> open_device(const DeviceConfig& config);

}  // namespace edgewise::cuda
