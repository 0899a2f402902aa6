#include "cuda/emulator/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

// switch(&from.stack_pointer, to.stack_pointer): what a callee must preserve goes on the stack that is left.
asm(R"(
.text
.type edgewise_emulator_switch, @function
edgewise_emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size edgewise_emulator_switch, .-edgewise_emulator_switch
)");

extern "C" void edgewise_emulator_switch(void** from, void* to);

namespace edgewise::emulator {

void prepare(Fiber& fiber, void (*entry)()) {
  if (!fiber.stack) {
    void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    mprotect(memory, 4096, PROT_NONE);  // the stack grows down onto this
    fiber.stack = static_cast<char*>(memory);
  }
  // As after a call: the stack is 8 bytes off a multiple of 16 when entry() starts.
  auto** top = reinterpret_cast<void**>(fiber.stack + kStackBytes - 8);
  *top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
  fiber.finished = false;
}

void switch_fiber(Fiber& from, Fiber& to) { edgewise_emulator_switch(&from.stack_pointer, to.stack_pointer); }

}  // namespace edgewise::emulator
