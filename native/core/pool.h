// Fork-join over a fixed set of threads, for kernels of a few microseconds.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace edgewise {

// The owner's thread is worker 0 and the only one to call parallel_for; `threads - 1` more wait for work, first
// spinning for a short while, then asleep in a futex.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  int workers() const { return static_cast<int>(threads_.size()) + 1; }
  // Calls fn(begin, end, worker) over [0, n) in pieces of `grain`; n <= grain runs here. An exception in any piece
  // stops the handing out of pieces and is rethrown here.
  void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t, int)>& fn);

 private:
  // state_ = epoch * 2^17 | open * 2^16 | threads inside. A thread that wakes late finds the epoch closed and goes back
  // to waiting, so that nobody waits for a sleeper.
  static constexpr uint64_t kOpen = 1u << 16;
  static constexpr uint64_t kInside = kOpen - 1;

  void worker_main(int worker);
  void take_pieces(int worker);
  uint64_t wait_for_work(uint64_t last_epoch);

  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int64_t> next_{0};
  alignas(64) std::atomic<uint32_t> signal_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  int64_t n_ = 0;
  int64_t grain_ = 1;
  const std::function<void(int64_t, int64_t, int)>* fn_ = nullptr;
  bool running_ = false;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

// Busy-waits a little longer on each call: pauses, then gives the core away. False once it is time to sleep.
class Backoff {
 public:
  bool spin();
  // Pauses or yields, never asks to sleep.
  void wait() {
    if (!spin()) round_ = kPauses;
  }

 private:
  static constexpr int kPauses = 1500;  // about 20 us
  static constexpr int kYields = 20;
  int round_ = 0;
};

}  // namespace edgewise
