#include "core/pool.h"

#include <sched.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "core/thread_name.h"

namespace edgewise {

bool Backoff::spin() {
  if (round_ < kPauses) {
    __builtin_ia32_pause();
  } else if (round_ < kPauses + kYields) {
    sched_yield();
  } else {
    return false;
  }
  ++round_;
  return true;
}

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { worker_main(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  signal_.fetch_add(1);
  signal_.notify_all();
  for (std::thread& t : threads_) t.join();
}

void ThreadPool::parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t, int)>& fn) {
  if (n <= 0) return;
  if (running_) throw std::logic_error("parallel_for inside parallel_for");
  grain = std::max<int64_t>(grain, 1);
  if (n <= grain) return fn(0, n, 0);
  running_ = true;
  n_ = n;
  grain_ = grain;
  fn_ = &fn;
  next_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  const uint64_t epoch = (state_.load(std::memory_order_relaxed) >> 17) + 1;
  state_.store(epoch << 17 | kOpen, std::memory_order_seq_cst);
  signal_.fetch_add(1, std::memory_order_seq_cst);
  signal_.notify_all();
  take_pieces(0);
  state_.fetch_and(~kOpen, std::memory_order_acq_rel);
  Backoff backoff;
  while (state_.load(std::memory_order_acquire) & kInside) backoff.wait();
  running_ = false;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::take_pieces(int worker) {
  const int64_t n = n_, grain = grain_;
  try {
    while (!failed_.load(std::memory_order_relaxed)) {
      const int64_t begin = next_.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= n) return;
      (*fn_)(begin, std::min(begin + grain, n), worker);
    }
  } catch (...) {
    std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
    failed_.store(true, std::memory_order_relaxed);
  }
}

// Returns a state that is open and of another epoch than `last_epoch`, or 0 when the pool stops.
uint64_t ThreadPool::wait_for_work(uint64_t last_epoch) {
  Backoff backoff;
  while (true) {
    const uint32_t seen = signal_.load(std::memory_order_seq_cst);
    if (stop_.load()) return 0;
    const uint64_t state = state_.load(std::memory_order_seq_cst);
    if ((state & kOpen) && state >> 17 != last_epoch) return state;
    if (!backoff.spin()) signal_.wait(seen);
  }
}

void ThreadPool::worker_main(int worker) {
  name_this_thread("edgewise-pool");
  uint64_t epoch = 0;
  while (uint64_t state = wait_for_work(epoch)) {
    if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
    epoch = state >> 17;
    take_pieces(worker);
    state_.fetch_sub(1, std::memory_order_acq_rel);
  }
}

}  // namespace edgewise
