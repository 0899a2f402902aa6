// Runs the threads of a block as fibers, and what they wait for each other with.
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cuda/emulator/fiber.h"
#include "cuda_runtime.h"

thread_local uint3 threadIdx, blockIdx;
thread_local dim3 blockDim, gridDim;

namespace edgewise::emulator {

namespace {

constexpr int kBarriers = 16;
constexpr size_t kExchangeBytes = 64;

struct Meeting {  // of the threads that arrive: the last one lets all go
  int arrived = 0;
  uint64_t passed = 0;
};

struct Warp {
  Meeting meeting;
  alignas(16) char slots[2][32][kExchangeBytes];
};

struct Block {
  const Launch* launch = nullptr;
  Fiber scheduler;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Meeting barriers[kBarriers];
  std::vector<char> shared;
  int current = 0, threads = 0, alive = 0;
  bool progress = false;  // some thread passed a meeting, or returned, since the last round began
};

thread_local Block block;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "CUDA emulator: kernel %s, block (%u, %u, %u), thread %d: %s\n", block.launch->kernel, blockIdx.x,
               blockIdx.y, blockIdx.z, block.current, what);
  abort();
}

void meet(Meeting& meeting, int expected) {
  const uint64_t round = meeting.passed;
  if (++meeting.arrived >= expected) {
    meeting.arrived = 0;
    ++meeting.passed;
    block.progress = true;
    return;
  }
  while (meeting.passed == round) yield();
}

// Threads that have returned count as arrived, as on the device.
void release_waiters_for_all() {
  Meeting& all = block.barriers[0];
  if (all.arrived > 0 && all.arrived >= block.alive) {
    all.arrived = 0;
    ++all.passed;
  }
}

void thread_entry() {
  block.launch->body();
  block.fibers[block.current].finished = true;
  block.progress = true;
  --block.alive;
  release_waiters_for_all();
  switch_fiber(block.fibers[block.current], block.scheduler);
  abort();
}

std::vector<int> order(int threads) {
  std::vector<int> list(threads);
  std::iota(list.begin(), list.end(), 0);
  const char* wanted = std::getenv("EDGEWISE_EMULATOR_ORDER");
  const std::string name = wanted ? wanted : "forward";
  if (name == "backward") std::reverse(list.begin(), list.end());
  else if (name != "forward") std::shuffle(list.begin(), list.end(), std::mt19937(static_cast<unsigned>(std::atoi(wanted))));
  return list;
}

void set_thread(int index) {
  block.current = index;
  threadIdx.x = index % blockDim.x;
  threadIdx.y = index / blockDim.x % blockDim.y;
  threadIdx.z = index / blockDim.x / blockDim.y;
}

void run_block(const std::vector<int>& turns) {
  block.alive = block.threads;
  for (Meeting& m : block.barriers) m = {};
  for (Warp& warp : block.warps) warp.meeting = {};
  std::memset(block.shared.data(), 0xff, block.shared.size());
  for (int i = 0; i < block.threads; ++i) prepare(block.fibers[i], thread_entry);
  // Waiting for something other than a thread (a barrier in memory) takes rounds without progress of ours.
  for (int idle = 0; block.alive > 0;) {
    block.progress = false;
    for (int i : turns) {
      if (block.fibers[i].finished) continue;
      set_thread(i);
      switch_fiber(block.scheduler, block.fibers[i]);
    }
    idle = block.progress ? 0 : idle + 1;
    if (idle > 1000) fail("all threads wait for each other: a barrier that some never reach");
  }
}

void run(const Launch& launch) {
  block.launch = &launch;
  gridDim = launch.grid;
  blockDim = launch.block;
  block.threads = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
  if (block.threads < 1 || block.threads > 1024) fail("a block has 1 to 1024 threads");
  if (launch.shared > 227 << 10) fail("a block has at most 227 KiB of shared memory");
  if (block.fibers.size() < static_cast<size_t>(block.threads)) block.fibers.resize(block.threads);
  block.warps.resize((block.threads + 31) / 32);
  block.shared.resize(launch.shared + 1024);
  const std::vector<int> turns = order(block.threads);
  for (unsigned z = 0; z < gridDim.z; ++z)
    for (unsigned y = 0; y < gridDim.y; ++y)
      for (unsigned x = 0; x < gridDim.x; ++x) {
        blockIdx = {x, y, z};
        run_block(turns);
      }
}

Warp& warp() { return block.warps[block.current / 32]; }

int lanes(unsigned mask) {
  const int width = std::min(32, block.threads - block.current / 32 * 32);
  const unsigned there = width == 32 ? 0xffffffffu : (1u << width) - 1;
  return std::popcount(mask & there);
}

// Two sets of slots in turn: a lane that is ahead by one exchange does not overwrite what others still read.
char (*publish(unsigned mask, const void* value, size_t bytes))[kExchangeBytes] {
  if (bytes > kExchangeBytes) fail("a warp exchanges at most 64 bytes a lane");
  Warp& w = warp();
  const int lane = block.current % 32;
  auto* slots = w.slots[w.meeting.passed % 2];
  std::memcpy(slots[lane], value, bytes);
  meet(w.meeting, lanes(mask));
  return slots;
}

}  // namespace

void yield() {
  const int me = block.current;
  switch_fiber(block.fibers[me], block.scheduler);
}

void barrier(int id, int threads) {
  if (id < 0 || id >= kBarriers) fail("there are 16 barriers");
  meet(block.barriers[id], threads > 0 ? threads : block.alive);
}

void warp_barrier(unsigned mask) { meet(warp().meeting, lanes(mask)); }

void exchange(unsigned mask, const void* value, void* out, size_t bytes, int from) {
  auto* slots = publish(mask, value, bytes);
  std::memcpy(out, slots[from & 31], bytes);
}

void gather(unsigned mask, const void* value, void* out, size_t bytes) {
  auto* slots = publish(mask, value, bytes);
  for (int i = 0; i < 32; ++i) std::memcpy(static_cast<char*>(out) + i * bytes, slots[i], bytes);
}

void* dynamic_shared() {
  return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(block.shared.data()) + 1023) / 1024 * 1024);
}

void trap() { fail("trap"); }

void run_launch(const Launch& launch) { run(launch); }

}  // namespace edgewise::emulator
