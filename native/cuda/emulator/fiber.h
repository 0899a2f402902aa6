// Stacks to switch between: one per emulated thread. x86-64, System V.
#pragma once

#include <cstddef>
#include <functional>

namespace edgewise::emulator {

struct Fiber {
  void* stack_pointer = nullptr;
  char* stack = nullptr;  // kStackBytes
  bool finished = true;
};

constexpr size_t kStackBytes = 256 << 10;

// Prepares `fiber` to run entry() at its first switch_to(); entry must not return.
void prepare(Fiber& fiber, void (*entry)());
// Saves the running context in `from` and continues `to`.
void switch_fiber(Fiber& from, Fiber& to);

}  // namespace edgewise::emulator
