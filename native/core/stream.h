// An in-order queue of kernels, run by one thread of its own and fed by one other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/op.h"
#include "core/pool.h"

namespace edgewise {

// One kernel launch; `op` names it in errors and outlives the stream.
struct Step {
  const char* op;
  Launch run;
};

using Steps = std::vector<Step>;

// A step that throws poisons the stream: later steps are skipped until the failure has been thrown by wait().
//
//   seq:    1  2  3  4  5  6  7        step 3 fails; wait(5) throws when steps up to 6 are enqueued:
//           ok ok X  -  -  -  ok       4..6 are skipped, wait() of any ticket 3..6 throws the same failure,
//                 [ window  ]          7 runs again
class Stream {
 public:
  explicit Stream(int threads);
  // Drops what is queued, waits for the step that runs.
  ~Stream();
  Stream(const Stream&) = delete;

  int threads() const { return pool_.workers(); }
  void enqueue(Step step);
  void enqueue(std::shared_ptr<const Steps> steps);
  // A ticket for this point of the queue.
  uint64_t record();
  // Blocks until the stream has passed the point; throws the failure of a step at or before it.
  void wait(uint64_t ticket);
  void sync() { wait(record()); }

 private:
  struct Command {
    uint64_t seq;
    Step step;
    std::shared_ptr<const Steps> graph;
  };
  class HostContext;

  uint64_t push(Step step, std::shared_ptr<const Steps> graph);
  void thread_main();
  bool take(std::deque<Command>& batch);
  void execute(Command& command, HostContext& context);
  bool skipped(uint64_t seq);

  ThreadPool pool_;

  std::mutex mutex_;  // guards queue_, enqueued_ and the condition variables
  std::condition_variable work_, done_;
  std::deque<Command> queue_;
  uint64_t enqueued_ = 0;
  std::atomic<bool> pending_{false};  // queue_ is not empty: what the stream thread spins on
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> completed_{0};
  // The ticket that wait() sleeps for: other completions wake nobody.
  std::atomic<uint64_t> wanted_{UINT64_MAX};

  struct Failure {
    uint64_t begin, end;  // sequence numbers; end is open until the failure is thrown
    std::string what;
  };
  std::mutex failure_mutex_;
  std::atomic<bool> poisoned_{false};
  std::unique_ptr<Failure> failure_;

  std::thread thread_;
};

}  // namespace edgewise
